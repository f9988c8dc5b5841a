// Which checkpoints and folders a training takes, keeps and refuses.
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>

#include "apps/image_files.hpp"
#include "apps/simulated_training.hpp"
#include "support/quiet_log.hpp"
#include "support/refused_options.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/exclusive_use.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("a run whose checkpoints are gone keeps what it has recorded, and one that had none yet begins again") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const auto with = [&](const std::string& run, const Arguments& more) {
    return Arguments{"--data", images.path(), "--quiet", "--hidden", "5", "--run-dir", folder.path() / run} + more;
  };
  (void)train_simulated(2, with("run", {"--steps", "2"}));
  std::filesystem::remove_all(folder.path() / "run/checkpoints");
  const std::string metrics = read_file(folder.path() / "run/metrics.jsonl");
  CHECK_THROWS_WITH(
      train_simulated(2, with("run", {"--steps", "2", "--resume", "auto"})),
      Catch::Contains("/run: its run has written checkpoints up to step 2, and ") &&
          Catch::Contains("/run/checkpoints holds none: another start from step 0 would replace what it has recorded"));
  CHECK(read_file(folder.path() / "run/metrics.jsonl") == metrics);
  (void)train_simulated(2, with("new", {"--steps", "2", "--resume", "auto"}));
  CHECK(std::filesystem::exists(folder.path() / "new/checkpoints/step-2"));

  // A kill may have come while the first one was written, which is complete when the next one begins.
  const auto kill = [&](const std::string& run, std::int64_t step, const Arguments& more) {
    fail_in(step, 2, with(run, {"--steps", "4", "--resume", "auto"}) + more);
    std::filesystem::remove_all(folder.path() / run / "checkpoints");
  };
  for (int time = 0; time < 2; ++time) kill("in the first", 3, {"--checkpoint-every", "2"});
  const Arguments go_on{"--steps", "4", "--checkpoint-every", "2", "--resume", "auto"};
  CHECK(train_simulated(2, with("in the first", go_on)).result["steps"] == 4);
  kill("in the second", 3, {"--checkpoint-every", "1"});
  CHECK_THROWS_WITH(train_simulated(2, with("in the second", go_on)),
                    Catch::Contains("has written checkpoints up to step 1, and "));
  // What a start has gone on from was complete.
  fail_in(3, 2, with("after a resume", {"--steps", "4", "--checkpoint-every", "2"}));
  kill("after a resume", 4, {"--checkpoint-every", "9"});
  CHECK_THROWS_WITH(train_simulated(2, with("after a resume", go_on)),
                    Catch::Contains("has written checkpoints up to step 2, and "));
}

TEST_CASE("a folder in which another process trains is refused at the start, and read all the same") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::filesystem::path checkpoints = folder.path() / "checkpoints";
  const Arguments data{"--data", images.path()}, run{"--quiet", "--hidden", "5"};
  const Arguments newest{"--checkpoint-dir", checkpoints, "--resume", "auto"};
  const Arguments two = run + newest + Arguments{"--steps", "2"};
  const Trained trained = train_simulated(2, data + two);
  const ExclusiveUse other{
      {.file = checkpoints / ".lock", .lease = "", .name = "other", .expected = "", .lease_times = {}}};
  for (const Arguments& more : {Arguments{}, Arguments{"--checkpoint-optional"}}) {
    CHECK_THROWS_AS(train_simulated(2, data + two + more), ConfigError);
    CHECK_THROWS_WITH(train_simulated(2, Arguments{"--data", "/proc/none"} + two + more),
                      Catch::StartsWith("--checkpoint-dir " + checkpoints.string() + " is in use by process ") &&
                          Catch::EndsWith("; expected a folder that no other training uses"));
  }
  CHECK(train_simulated(2, data + run + newest + Arguments{"--eval-only"}).digest() == trained.digest());
  const Arguments elsewhere{"--steps", "3", "--resume", checkpoints / "step-2"};
  CHECK(train_simulated(2, data + run + elsewhere).result["steps"] == 3);
}

TEST_CASE("a training that its ranks cannot share is told with the numbers that can, and a folder as a link by name") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::filesystem::path checkpoints = folder.path() / "checkpoints";
  const Arguments run{"--data", images.path(), "--quiet", "--hidden", "5", "--steps", "2"};
  const Arguments newest{"--checkpoint-dir", checkpoints, "--resume", "auto"};
  (void)train_simulated(2, run + newest + Arguments{"--shards", "2"});
  const std::string told = ": is of a training with 2 shards, which 3 ranks cannot share; expected 1 or 2 ranks";
  CHECK_THROWS_WITH(train_simulated(3, run + newest), "checkpoint " + (checkpoints / "step-2").string() + told);
  const std::string latest = checkpoints / "latest";
  CHECK_THROWS_WITH(train_simulated(3, run + Arguments{"--resume", latest}),
                    "checkpoint " + (checkpoints / "step-2").string() + told);
  CHECK_THROWS_AS(train_simulated(3, run + newest), CheckpointError);

  std::filesystem::remove(latest);
  std::filesystem::create_directory(latest);
  check_all_refused({{run + newest,
                      {"--checkpoint-dir " + checkpoints.string() +
                       ": 'latest' in it is a folder; expected a symbolic link to a checkpoint, or nothing"}}},
                    [](const Arguments& arguments) { (void)train_simulated(2, arguments); });
}

TEST_CASE("a checkpoint is a folder, and the line says what else a path leads to") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::string pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  check_all_refused<Error>({{{"--resume", pipe}, {"checkpoint " + pipe + ": is a pipe, not a regular file"}},
                            {{"--checkpoint-dir", pipe},
                             {"--checkpoint-dir " + pipe + ": is a pipe; expected a folder that can be written"}},
                            {{"--init-from", pipe}, {"checkpoint " + pipe + ": is a pipe, not a regular file"}}},
                           [](const Arguments& more) { (void)train_simulated(1, short_run() + more); });
}

TEST_CASE("the checkpoint with the lowest evaluation loss is kept, whatever ends the training before the next") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::filesystem::path checkpoints = folder.path() / "checkpoints";
  // At this rate the loss is lowest after step 2, and never as low again.
  const Arguments often{"--eval-every", "1", "--keep", "1", "--checkpoint-every", "3", "--keep-best"};
  const Arguments run = often + Arguments{"--data", images.path(), "--quiet", "--hidden", "5", "--learning-rate", "3"} +
                        Arguments{"--steps",          "9",         "--resume",  "auto",
                                  "--checkpoint-dir", checkpoints, "--metrics", folder.path() / "metrics"};
  fail_in(5, 2, run);
  const Trained trained = train_simulated(4, run);
  std::int64_t best = 0;
  double lowest = std::numeric_limits<double>::infinity();
  for (const Json& line : trained.metrics) {
    if (line["kind"] != "eval") continue;
    INFO(line.dump());
    if (line["loss"].get<double>() >= lowest) continue;
    lowest = line["loss"];
    best = line["step"];
  }
  REQUIRE(best == 2);
  CHECK(std::filesystem::read_symlink(checkpoints / "best") == "step-" + std::to_string(best));
  CHECK(std::filesystem::exists(checkpoints / "best" / "manifest.json"));
  CHECK(std::filesystem::read_symlink(checkpoints / "latest") == "step-9");
}

namespace {

struct Override {
  const char* name;
  Arguments old_values, new_values;
};

/// The names in a folder of checkpoints, with the digest of the weights of each.
std::vector<std::string> checkpoints_with_digests(const std::filesystem::path& folder) {
  std::vector<std::string> all;
  for (const auto& checkpoint : checkpoints_in(folder)) {
    const Manifest manifest = read_checkpoint(checkpoint);
    std::string text = checkpoint.filename();
    for (const auto& [tensor, digest] : manifest.file(weights_file)->digests) text += fmt::format(" {:x}", digest);
    all.push_back(text);
  }
  return all;
}

}  // namespace

TEST_CASE(
    "a training that went on from an earlier checkpoint in another way goes on with its own, and not the left ones") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const auto& [name, old_values, new_values] =
      GENERATE(values<Override>({{"learning-rate", {"--learning-rate", "0.02"}, {"--learning-rate", "0.2"}},
                                 {"schedule", {"--schedule", "constant"}, {"--schedule", "cosine"}},
                                 {"warmup-steps", {"--warmup-steps", "0"}, {"--warmup-steps", "9"}},
                                 {"steps", {"--schedule", "cosine"}, {"--schedule", "cosine", "--steps", "13"}},
                                 {"epochs", {"--schedule", "cosine"}, {"--schedule", "cosine", "--epochs", "5"}}}));
  CAPTURE(name);
  const TemporaryDirectory folder;
  const std::filesystem::path left = folder.path() / "left", clean = folder.path() / "clean";
  // Of 8 steps an epoch.
  const Arguments run{"--data", images.path(), "--quiet", "--hidden", "5", "--global-batch", "12"};
  const Arguments twelve{"--steps", "12"};
  const auto in = [](const std::filesystem::path& place) {
    return Arguments{"--checkpoint-dir",   place, "--metrics", place.string() + ".metrics",
                     "--checkpoint-every", "2",   "--keep",    "9"};
  };
  Arguments changed = run + new_values + Arguments{"--override", name};
  if (std::ranges::find(new_values, "--steps") == new_values.end() &&
      std::ranges::find(new_values, "--epochs") == new_values.end())
    changed = changed + twelve;
  (void)train_simulated(2, run + twelve + old_values + in(left));
  std::filesystem::create_directory(clean);
  std::filesystem::copy(left / "step-4", clean / "step-4", std::filesystem::copy_options::recursive);

  const Trained whole = train_simulated(1, changed + in(clean) + Arguments{"--resume", clean / "step-4"});
  // Before the first checkpoint of its own, and after it.
  fail_in(5, 2, changed + in(left) + Arguments{"--resume", left / "step-4"});
  CHECK(std::filesystem::exists(left / "step-12.aside"));
  fail_in(8, 2, changed + in(left) + Arguments{"--resume", "auto"});
  const Trained resumed = train_simulated(2, changed + in(left) + Arguments{"--resume", "auto"});
  CHECK(resumed.digest() == whole.digest());
  const auto own = checkpoints_with_digests(clean);
  auto all = checkpoints_with_digests(left);
  std::erase_if(all, [](const std::string& each) { return each.starts_with("step-2 "); });
  CHECK(all == own);
  // Each step once.
  std::int64_t made = 0;
  for (const std::string& line : lines_starting_with(read_file(left.string() + ".metrics"), R"({"kind":"train")"))
    CHECK(Json::parse(line).at("step") == ++made);
  CHECK(made == resumed.result["steps"].get<std::int64_t>());
}

TEST_CASE("a start that is refused leaves every checkpoint where it is") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::filesystem::path checkpoints = folder.path() / "checkpoints";
  const Arguments model{"--data", images.path(), "--quiet", "--hidden", "5"};
  const Arguments run = model + Arguments{"--checkpoint-dir", checkpoints, "--checkpoint-every", "2"};
  (void)train_simulated(2, run + Arguments{"--steps", "6"});
  const Arguments from{"--resume", checkpoints / "step-4"};
  CHECK_THROWS_AS(train_simulated(2, run + from + Arguments{"--steps", "3"}), ConfigError);
  CHECK_THROWS_AS(train_simulated(2, run + from + Arguments{"--steps", "6", "--seed", "2"}), CheckpointError);
  (void)train_simulated(2, model + from + Arguments{"--eval-only"});
  CHECK(std::filesystem::exists(checkpoints / "step-6"));
  CHECK(std::filesystem::read_symlink(checkpoints / "latest") == "step-6");
}

TEST_CASE("a training that goes on from another folder leaves what is in its own") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::filesystem::path first = folder.path() / "first", second = folder.path() / "second";
  const Arguments run{"--data", images.path(), "--quiet", "--hidden", "5", "--checkpoint-every", "2", "--steps"};
  const Trained whole = train_simulated(2, run + Arguments{"6", "--checkpoint-dir", first});
  (void)train_simulated(2, run + Arguments{"8", "--checkpoint-dir", second, "--seed", "2"});
  const Arguments from = run + Arguments{"6", "--checkpoint-dir", second, "--resume", first / "step-2"};
  fail_in(5, 2, from);
  CHECK(train_simulated(1, run + Arguments{"6", "--checkpoint-dir", second, "--resume", "auto"}).digest() ==
        whole.digest());
  CHECK(std::filesystem::exists(second / "step-8.aside"));
  CHECK_FALSE(std::filesystem::exists(second / "step-8"));
}
