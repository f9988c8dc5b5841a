// Trainings whose ranks are killed at random moments, in steps, agreements and writes, and that go on, on other numbers
// of ranks: they end in the bytes of one that was never disturbed. LOCKSTEP_RANDOM_KILLS says how often, which
// scripts/test --extended sets.
#include <cstdlib>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include <catch2/catch.hpp>

#include "faults/running_job.hpp"

using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

int kills_in_all() {
  const char* const text = std::getenv("LOCKSTEP_RANDOM_KILLS");
  return text && *text ? std::atoi(text) : 20;
}

/// What `latest` points to; empty before the first checkpoint.
std::string newest(const fs::path& checkpoints) {
  std::error_code none_yet;
  return fs::read_symlink(checkpoints / "latest", none_yet).string();
}

/// Kills a rank some moment after the job's first own checkpoint. mpirun kills the others a second later, or at once.
void kill_one(int ranks, int victim, bool others_at_once, const Arguments& arguments, const fs::path& checkpoints) {
  const SharedMemory memory;
  const std::string before = newest(checkpoints);
  const auto launch = [ranks, others_at_once](const Arguments& all, const CommandOptions& options) {
    return others_at_once ? run_refused(ranks, all, options) : run_job(ranks, all, options);
  };
  RunningJob job{launch, {}, memory, arguments};
  job.wait_until([&] { return newest(checkpoints) != before; }, std::chrono::milliseconds{1});
  bool hit = false;
  job.suffer([&] {
    const auto process = job.find(victim);
    hit = process && ::kill(*process, SIGKILL) == 0;
  });
  std::chrono::duration<double> after{0};
  const Outcome outcome = job.end(after);
  INFO("stderr: " << outcome.err);
  REQUIRE(hit);
  CHECK(outcome.exit_code == (ranks > 1 ? code_of_killed() : code_of_signal(SIGKILL)));
  CHECK(processes_left(outcome.marker) == std::vector<std::string>{});
  CHECK(memory.left() == std::set<std::string>{});
}

/// Requires that the files of a run's folder went on with each start: `steps` in the metrics, each once and in order,
/// and in the timeline every start, how each ended at most once, and nothing that is cut off.
void check_folder(const fs::path& run, int steps, int starts) {
  int made = 0, last_start = 0, last_end = 0;
  for (const Json& line : read_metrics(run / "metrics.jsonl"))
    if (line.at("kind") == "train") CHECK(line.at("step") == ++made);
  CHECK(made == steps);
  std::istringstream timeline{read_file(run / "timeline.jsonl")};
  for (std::string text; std::getline(timeline, text);) {
    const Json line = Json::parse(text);
    const int start = line.at("start");
    if (line.at("kind") == "start") CHECK(start == ++last_start);
    if (line.at("kind") == "failure" || line.at("kind") == "end") CHECK(std::exchange(last_end, start) < start);
    CHECK(start == last_start);
  }
  CHECK(last_start == starts);
  CHECK(last_end == starts);
}

/// With `share` of every ten kills. A training that is killed goes on for few of the `steps_to_a_kill`.
void check_killed(int share, int steps_to_a_kill, const Arguments& arguments) {
  const int kills = (kills_in_all() * share + 9) / 10;
  const Arguments run =
      arguments + Arguments{"--steps", std::to_string((kills + 1) * steps_to_a_kill), "--eval-every", "100000"};
  const Trained whole = train(2, run);
  const TemporaryDirectory folder;
  const fs::path checkpoints = folder.path() / "run" / "checkpoints";
  const Arguments going_on = Arguments{"--run-dir", folder.path() / "run"} + run + Arguments{"--resume", "auto"};
  std::mt19937 random{std::random_device{}()};
  constexpr int rank_counts[]{2, 4, 1};
  for (int kill = 0; kill < kills; ++kill) {
    const int ranks = rank_counts[kill % 3], victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    CAPTURE(kill, ranks, victim);
    kill_one(ranks, victim, kill != 3, going_on + Arguments{"--checkpoint-every", "2"}, checkpoints);
  }
  INFO("killed " << kills << " times, the last time after " << newest(checkpoints));
  const Outcome last = run_job(4, going_on);
  REQUIRE(last.exit_code == 0);
  CHECK(Json::parse(last_line(last.out)).at("weights_digest") == whole.digest());
  check_folder(folder.path() / "run", (kills + 1) * steps_to_a_kill, kills + 1);
}

}  // namespace

TEST_CASE("an mlp that is killed again and again ends in the bytes of one that was not") {
  check_killed(4, 50, {"--data", small_data(), "--hidden", "16", "--accumulate", "2"});
}

TEST_CASE("a convnet with batch norm and dropout does too", "[extended]") {
  check_killed(
      3, 10,
      {"--data", small_data(), "--model", "convnet", "--global-batch", "16", "--batch-norm", "--dropout", "0.3"});
}

TEST_CASE("a gpt does too", "[extended]") {
  const TemporaryDirectory folder;
  check_killed(3, 25,
               {"--data", folder.write("text", small_text(4000)), "--model", "gpt", "--layers", "2", "--heads", "2",
                "--embed", "32", "--context", "16"});
}
