// A run that others check: the ledger, and lockstep-verify, which computes the run again.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <xxhash.h>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

Arguments recorded(const std::filesystem::path& folder) {
  return {"--hidden",           "16", "--steps",  "9", "--global-batch", "64",
          "--checkpoint-every", "4",  "--ledger", "3", "--run-dir",      folder.string()};
}

Outcome verify(int ranks, const std::filesystem::path& folder, const Arguments& more = {}) {
  Arguments command{"mpirun",    "-q",           "-n", std::to_string(ranks), std::getenv("LOCKSTEP_VERIFY"),
                    "--run-dir", folder.string()};
  return run_command(command + more);
}

void check_ends(const Outcome& outcome, int exit_code, const std::string& told) {
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.exit_code == exit_code);
  const auto lines = lines_starting_with(outcome.err, "lockstep: error: ");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::Contains(told));
}

std::string to_hex16(std::uint64_t number) {
  return fmt::format("{:016x}", number);
}

/// What somebody would do who wants a false ledger to look right: changes `from` to `to`, and all chains after it.
void forge(const std::filesystem::path& ledger, const std::string& from, const std::string& to) {
  std::ifstream in{ledger};
  std::string forged, chain, line;
  bool found = false;
  while (std::getline(in, line)) {
    if (const auto at = line.find(from); at != line.npos) {
      line.replace(at, from.size(), to);
      found = true;
    }
    line.resize(line.find(",\"chain\""));
    const std::string all = chain + line;
    chain = to_hex16(XXH64(all.data(), all.size(), 0));
    forged += fmt::format("{},\"chain\":\"{}\"}}\n", line, chain);
  }
  REQUIRE(found);
  std::ofstream{ledger} << forged;
}

/// The text between two others, in the line of the ledger that contains `which`.
std::string in_line(const std::filesystem::path& ledger, const std::string& which, const std::string& before) {
  for (const std::string& line : lines_starting_with(read_file(ledger), "{")) {
    if (line.find(which) == line.npos) continue;
    const auto begin = line.find(before) + before.size();
    return line.substr(begin, 16);
  }
  return {};
}

}  // namespace

TEST_CASE("the ledger is the same on any number of ranks, and after a kill on others") {
  const TemporaryDirectory folder;
  const auto ledger_of = [&](const char* run) {
    const std::filesystem::path path = folder.path() / run;
    return read_file(path / "ledger.jsonl") + read_file(path / "ledger.shards.jsonl");
  };
  (void)train(1, recorded(folder.path() / "one"));
  const CommandOptions killed{.environment = {{"LOCKSTEP_FAULT", "kill:1:6"}, kills_at_once}};
  CHECK(run_job(2, Arguments{"--data", small_data()} + recorded(folder.path() / "two"), killed).exit_code != 0);
  (void)train(4, recorded(folder.path() / "two") + Arguments{"--resume", "auto"});
  CHECK_FALSE(ledger_of("one").empty());
  CHECK(ledger_of("one") == ledger_of("two"));
}

TEST_CASE("lockstep-verify confirms a run, and names what is not so") {
  const TemporaryDirectory folder;
  const std::filesystem::path run = folder.path() / "run", ledger = run / "ledger.jsonl";
  (void)train(2, recorded(run));
  const std::string as_written = read_file(ledger);

  const Outcome whole = verify(1, run), part = verify(2, run, {"--steps", "6:9"});
  CHECK(whole.out == "confirmed: 6 entries of the ledger, steps 1 to 9, on 1 rank\n");
  CHECK(part.out == "confirmed: 4 entries of the ledger, steps 5 to 9, on 2 ranks\n");
  CHECK(whole.exit_code == 0);
  CHECK(part.exit_code == 0);

  // A step that no training makes.
  forge(ledger, "{\"step\":6,\"samples\"", "{\"step\":5,\"samples\"");
  check_ends(verify(1, run), 9, "step 5 is not as the ledger has it");

  std::ofstream{ledger} << as_written.substr(0, as_written.rfind("{\"step\""));
  check_ends(verify(1, run), 7, "has no end, although the run has ended");

  // Samples, results and weights that look right, as do the digests of the shards.
  std::ofstream{ledger} << as_written;
  const std::string weights = in_line(ledger, "\"weights\"", "\"weights\":\"");
  forge(ledger, weights, "0123456789abcdef");
  check_ends(verify(2, run), 9, "step 4 is not as the ledger has it: the weights after it");
  check_ends(verify(1, run, {"--steps", "6:9"}), 7, "step-4: holds other weights than the ledger has for step 4");

  std::ofstream{ledger} << as_written;
  const std::filesystem::path shards = run / "ledger.shards.jsonl";
  Json line = Json::parse(lines_starting_with(read_file(shards), "{\"step\":6,").at(0));
  auto digests = line["shards"][5].get<std::string>();
  const std::string before = digests;
  digests.replace(16, 16, "fedcba9876543210");  // after that of the samples
  std::string text = read_file(shards);
  text.replace(text.find(before), before.size(), digests);
  std::ofstream{shards} << text;
  line["shards"][5] = digests;
  std::vector<std::uint64_t> all;
  for (const Json& each : line["shards"])
    for (std::size_t at = 0; at < each.get<std::string>().size(); at += 16)
      all.push_back(std::stoull(each.get<std::string>().substr(at, 16), nullptr, 16));
  const std::string root = in_line(ledger, "{\"step\":6,\"samples\"", "\"shards\":\"");
  forge(ledger, root, to_hex16(XXH64(all.data(), 8 * all.size(), 0)));
  check_ends(verify(2, run), 9, "step 6 is not as the ledger has it: gradient of 'dense_1/bias' of shard 5");
}

TEST_CASE("lockstep-bisect finds the step, the shard and the tensor, also between the entries of the ledgers") {
  const TemporaryDirectory folder;
  const auto run = [&](const char* name) { return folder.path() / name; };
  (void)train(2, recorded(run("one")));
  (void)train(1, recorded(run("other")) + Arguments{"--learning-rate", "0.02"});
  const auto bisect = [&](const char* one, const char* other) {
    return run_command({"mpirun", "-q", "-n", "2", std::getenv("LOCKSTEP_BISECT"), "--run-dir", run(one).string(),
                        "--run-dir", run(other).string()});
  };
  const Outcome differ = bisect("one", "other");
  INFO(differ.out << differ.err);
  CHECK(differ.exit_code == 1);
  // Both have the gradients of the first step, and update by another rate.
  CHECK_THAT(differ.out, Catch::StartsWith("the ledgers agree up to step 0, and not in step 3\n") &&
                             Catch::Contains("/one: computed again here, it gives what its ledger has\n") &&
                             Catch::Contains("/other: computed again here, it gives what its ledger has\n") &&
                             Catch::Contains("they begin to differ in step 1: the weights after it\n"));
}

TEST_CASE("lockstep-verify refuses what cannot be compared") {
  const TemporaryDirectory folder;
  const std::filesystem::path run = folder.path() / "run";
  (void)train(1, Arguments{"--hidden", "4", "--steps", "2", "--run-dir", run.string()});
  check_ends(verify(1, folder.path() / "none"), 2, "run.json: cannot be read; expected the folder of a run");
  check_ends(verify(1, run, {"--steps", "1:3"}), 2, "--steps 1:3: expected steps from 1 to 2");
  check_ends(verify(1, run, {"--steps", "1:1"}), 2, "--steps 1:1: the ledger has no entry of these steps");
  const TemporaryDirectory others;
  std::filesystem::copy(small_data(), others.path() / "data", std::filesystem::copy_options::recursive);
  for (const char* each : {"images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"})
    std::filesystem::copy_file(small_data() / (std::string{"t10k-"} + each),
                               others.path() / "data" / (std::string{"train-"} + each),
                               std::filesystem::copy_options::overwrite_existing);
  check_ends(verify(1, run, {"--data", (others.path() / "data").string()}), 2, "their bits cannot be compared");
  std::filesystem::remove(run / "ledger.jsonl");
  check_ends(verify(1, run), 2, "holds no ledger; expected a run without --ledger off");
}
