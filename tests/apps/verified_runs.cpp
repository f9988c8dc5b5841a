// A run that others check, on simulated ranks: the ledger, and what computing the run again confirms or finds.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/forged_ledger.hpp"
#include "apps/image_files.hpp"
#include "apps/lockstep-bisect/difference.hpp"
#include "apps/lockstep-train/recorded_command.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "apps/lockstep-train/verification.hpp"
#include "apps/simulated_training.hpp"
#include "apps/verified.hpp"
#include "support/quiet_log.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::vector<StepDigests> record_again(int ranks, const RecordedRun& run, Range steps) {
  const QuietLog quiet;
  std::vector<StepDigests> digests;
  sim::run({.ranks = ranks, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
    Trainer trainer{strategy, "cpu", command_of(run).training};
    std::vector<StepDigests> own = std::move(trainer).record_again(run, steps);
    if (rank == 0) digests = std::move(own);
  });
  return digests;
}

std::string ledger_of(const std::filesystem::path& run) {
  return read_file(run / "ledger.jsonl") + read_file(run / "ledger.shards.jsonl");
}

}  // namespace

TEST_CASE("the ledger is the same on any number of ranks, and after a failure on others") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::filesystem::path one = folder.path() / "one", two = folder.path() / "two";
  (void)train_simulated(1, recorded(one));
  ::setenv("LOCKSTEP_FAULT", "throw:1:6", 1);
  CHECK_THROWS(train_simulated(2, recorded(two)));
  ::unsetenv("LOCKSTEP_FAULT");
  (void)train_simulated(3, recorded(two) + Arguments{"--resume", "auto"});
  CHECK_FALSE(ledger_of(one).empty());
  CHECK(ledger_of(one) == ledger_of(two));
}

TEST_CASE("a run is confirmed on any number of ranks, and what is not so is named") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "run", ledger = path / "ledger.jsonl";
  (void)train_simulated(2, recorded(path));
  const std::string as_written = read_file(ledger);
  const auto now = [&] { return run_in(path, recorded(path)); };
  for (const int ranks : {1, 2, 4}) CHECK(verify(ranks, now()).entries == 6);
  const VerificationResult part = verify(2, now(), Range{6, 9});
  CHECK(part.entries == 4);
  CHECK(part.from == 4);
  CHECK(part.to == 9);

  // A step that no training makes.
  forge(ledger, "{\"step\":6,\"samples\"", "{\"step\":5,\"samples\"");
  CHECK_THROWS_WITH(verify(1, now()), Catch::Contains("step 5 is not as the ledger has it"));

  std::ofstream{ledger} << as_written.substr(0, as_written.rfind("{\"step\""));
  CHECK_THROWS_WITH(now(), Catch::Contains("has no end, although the run has ended"));

  std::ofstream{ledger} << as_written;
  forge(ledger, in_line(ledger, "\"weights\"", "\"weights\":\""), "0123456789abcdef");
  CHECK_THROWS_WITH(verify(2, now()), Catch::Contains("step 4 is not as the ledger has it: the weights after it"));
  CHECK_THROWS_WITH(verify(1, now(), Range{6, 9}),
                    Catch::Contains("step-4: holds other weights than the ledger has for step 4"));

  std::ofstream{ledger} << as_written;
  forge_shard(path);
  for (const int ranks : {1, 2}) CHECK_THROWS_AS(verify(ranks, now()), AuditError);
  CHECK_THROWS_WITH(verify(2, now()),
                    Catch::Contains("step 6 is not as the ledger has it: gradient of 'dense_1/bias' of shard 5"));
}

TEST_CASE("a run whose last start left out what its checkpoints say is confirmed from the first step") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "run";
  Arguments arguments = recorded(path);
  ::setenv("LOCKSTEP_FAULT", "throw:0:6", 1);
  CHECK_THROWS(train_simulated(1, arguments));
  ::unsetenv("LOCKSTEP_FAULT");
  arguments.erase(arguments.begin() + 2, arguments.begin() + 4);
  REQUIRE(std::ranges::find(arguments, "--hidden") == arguments.end());
  arguments = arguments + Arguments{"--resume", "auto"};
  (void)train_simulated(2, arguments);
  RecordedRun run = run_in(path, arguments);
  CHECK(verify(1, run).entries == 6);
  // The exported weights say it too.
  std::filesystem::remove_all(run.checkpoints);
  CHECK(verify(1, run).entries == 6);
  run.weights.clear();
  CHECK_THROWS_WITH(verify(1, run), Catch::Contains("their bits cannot be compared"));
}

TEST_CASE("a run that began with weights from a file is confirmed with these weights alone") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const auto weights = [&](const char* seed) {
    const std::filesystem::path file = folder.path() / seed;
    (void)train_simulated(
        1, {"--data", small_data(), "--hidden", "16", "--steps", "1", "--seed", seed, "--export", file.string()});
    return file;
  };
  const std::filesystem::path first = weights("1"), second = weights("2"), path = folder.path() / "run";
  const Arguments arguments = recorded(path), begun = arguments + Arguments{"--init-from", first.string()};
  ::setenv("LOCKSTEP_FAULT", "throw:0:6", 1);
  CHECK_THROWS(train_simulated(1, begun));
  ::unsetenv("LOCKSTEP_FAULT");
  // A resumed run says it all, but for the file.
  const Arguments resumed = arguments + Arguments{"--resume", (path / "checkpoints/step-4").string()};
  (void)train_simulated(1, resumed);
  CHECK(begins_with_weights(run_in(path, begun)));
  CHECK(verify(2, run_in(path, begun)).entries == 6);
  CHECK_THROWS_WITH(verify(1, run_in(path, arguments + Arguments{"--init-from", second.string()})),
                    Catch::Contains("holds other weights than those that the run began with"));
  CHECK_THROWS_WITH(verify(1, run_in(path, resumed)), Catch::Contains("expected --init-from FILE"));
  CHECK(verify(1, run_in(path, resumed), {}, {.initial_weights = first}).entries == 6);
  CHECK(verify(1, run_in(path, resumed), Range{6, 9}).entries == 4);

  const std::filesystem::path other = folder.path() / "other";
  (void)train_simulated(1, recorded(other));
  CHECK_THROWS_WITH(verify(1, run_in(other, recorded(other)), {}, {.initial_weights = first}),
                    Catch::Contains("began without a file of weights"));
}

TEST_CASE("ranks that read different copies of a run say so") {
  const QuietLog quiet;
  const auto check = [](const std::function<void(RecordedRun&)>& change) {
    sim::run({.ranks = 2, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
      RecordedRun run{.command = {"lockstep-train"}, .ledger = {.chain = "0123456789abcdef"}};
      if (rank == 1) change(run);
      require_same_on_all(strategy, run);
    });
  };
  CHECK_NOTHROW(check([](RecordedRun&) {}));
  CHECK_THROWS_AS(check([](RecordedRun& run) { run.command.emplace_back("--help"); }), MismatchError);
  CHECK_THROWS_WITH(check([](RecordedRun& run) { run.ledger.chain.back() = 'e'; }),
                    Catch::Contains("a ledger with the last chain 0123456789abcdef") &&
                        Catch::Contains("a ledger with the last chain 0123456789abcdee"));
}

TEST_CASE("where and how a run was made does not bind whoever checks it") {
  const auto of = [](const Arguments& arguments, const char* device = "cpu") {
    return command_of({.command = Arguments{"lockstep-train", "--data", "d"} + arguments, .device = device});
  };
  const CommandLine far = of({"--cluster-spec", "c.json",  "--network",        "10.77.0.0/24",
                              "--devices",      "0,1",     "--stall-timeout",  "1",
                              "--on-stall",     "observe", "--mpi-threads",    "main",
                              "--data-memory",  "1K",      "--run-dir",        "r",
                              "--metrics",      "m",       "--checkpoint-dir", "c",
                              "--export",       "w",       "--tensorboard",    "--trace"},
                             "cuda");
  const RuntimeOptions usual;
  CHECK(far.runtime.cluster_spec.empty());
  CHECK(far.runtime.network.empty());
  CHECK(far.runtime.devices.empty());
  CHECK(far.runtime.device == "cuda");
  CHECK(far.runtime.stall_timeout == usual.stall_timeout);
  CHECK(far.runtime.on_stall == usual.on_stall);
  CHECK(far.runtime.mpi_threads == usual.mpi_threads);
  CHECK(far.training.data_memory_bytes == TrainingOptions{}.data_memory_bytes);
  for (const std::filesystem::path& path :
       {far.training.run_folder, far.training.metrics, far.training.checkpoints, far.training.exported_weights})
    CHECK(path.empty());
  CHECK_FALSE((far.training.tensorboard || far.training.trace));
  // What decides the bits stays.
  const CommandLine near = of({"--shards", "4", "--compress-gradients", "bf16", "--threads", "2"});
  CHECK(near.runtime.device == "cpu");
  CHECK(near.runtime.reductions.gradient_compression == DType::bf16);
  CHECK(near.training.threads == 2);
}

TEST_CASE("runs of each kind are confirmed on other numbers of ranks") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const ImageFiles images{{.train = 64, .test = 8, .rows = 8, .columns = 8}};
  const std::filesystem::path path = folder.path() / "run", text = folder.path() / "text",
                              bytes = folder.path() / "bytes";
  std::ofstream{text} << small_text(4000);
  std::ofstream{bytes} << small_text(4000) + '\0';
  struct Kind {
    Arguments options;
    int ranks, again;
  };
  const Arguments gpt{"--model", "gpt", "--layers", "1", "--heads", "2", "--embed", "8", "--context", "8"};
  const Arguments convnet{"--model", "convnet"}, mlp{"--hidden", "4"};
  const Kind kind = GENERATE_COPY(
      Kind{gpt + Arguments{"--precision", "bf16", "--prefetch", "1"}, 1, 8},
      Kind{gpt + Arguments{"--accumulate", "2", "--shard-optimizer"}, 4, 1}, Kind{gpt + Arguments{"--binary"}, 2, 1},
      Kind{convnet + Arguments{"--batch-norm", "--dropout", "0.5"}, 2, 4},
      Kind{convnet + Arguments{"--sync-batch-norm"}, 1, 2},
      Kind{mlp + Arguments{"--threads", "2", "--optimizer", "adamw", "--freeze", "dense_0*"}, 2, 1},
      Kind{mlp + Arguments{"--shards", "ranks", "--threads", "2"}, 2, 2});
  const auto& [options, ranks, again] = kind;
  const std::string data = options.back() == "--binary" ? bytes.string()
                           : options[1] == "gpt"        ? text.string()
                                                        : images.path();
  const Arguments arguments =
      options + Arguments{"--data",         data,         "--steps",  "3", "--global-batch",     "16",
                          "--eval-samples", "1",          "--ledger", "1", "--checkpoint-every", "2",
                          "--run-dir",      path.string()};
  (void)train_simulated(ranks, arguments);
  const VerificationResult whole = verify(again, run_in(path, arguments));
  CHECK(whole.entries == 5);
  CHECK(whole.checkpoints == 2);
  CHECK(whole.has_weights);
  CHECK(verify(ranks, run_in(path, arguments), Range{3, 3}).entries == 2);
}

TEST_CASE("what cannot be compared is refused") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "run";
  CHECK_THROWS_WITH(read_run(folder.path() / "none"), Catch::Contains("expected the folder of a run"));
  const Arguments arguments{"--data", small_data(), "--hidden", "4", "--steps", "2", "--run-dir", path.string()};
  (void)train_simulated(1, arguments);
  const RecordedRun run = run_in(path, arguments);
  CHECK_THROWS_WITH(verify(1, run, Range{1, 3}), Catch::Contains("--steps 1:3: expected steps from 1 to 2"));
  CHECK_THROWS_WITH(verify(1, run, Range{1, 1}),
                    Catch::Contains("--steps 1:1: the ledger has no entry of these steps"));
  RecordedRun shorter = run;
  shorter.command = Arguments{"lockstep-train"} + arguments;
  shorter.command[6] = "1";
  CHECK_THROWS_WITH(verify(1, shorter), Catch::Contains("the command of the run makes 1 steps"));
  RecordedRun other = run;
  other.command = other.command + Arguments{"--seed", "5"};
  CHECK_THROWS_WITH(verify(1, other), Catch::Contains("the run has seed \"1\", and here it is \"5\": their bits cannot "
                                                      "be compared"));
  other.command[4] = "5";
  CHECK_THROWS_WITH(verify(1, other), Catch::Contains("--hidden 5: contradicts"));
  RecordedRun elsewhere = run;
  elsewhere.ledger.about["kernels"] = "oneDNN 0.0.1";
  CHECK_THROWS_WITH(verify(1, elsewhere), Catch::Contains("their bits cannot be compared; expected a training and a "
                                                          "verification with --kernels reference"));

  const std::filesystem::path data = folder.path() / "data";
  std::filesystem::copy(small_data(), data, std::filesystem::copy_options::recursive);
  for (const char* each : {"images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"})
    std::filesystem::copy_file(small_data() / (std::string{"t10k-"} + each), data / (std::string{"train-"} + each),
                               std::filesystem::copy_options::overwrite_existing);
  CHECK_THROWS_AS(verify(1, run, {}, {.data = data}), ConfigError);
  CHECK_THROWS_WITH(verify(1, run, {}, {.data = data}), Catch::Contains("their bits cannot be compared"));
}

TEST_CASE("a run with compressed gradients is confirmed where nodes have the same shards, and refused elsewhere") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const auto on = [](int ranks, int ranks_per_node) {
    return sim::Options{.ranks = ranks, .ranks_per_node = ranks_per_node};
  };
  const auto train = [&](const sim::Options& job, const char* name) {
    const std::filesystem::path path = folder.path() / name;
    const Arguments arguments = recorded(path) + Arguments{"--compress-gradients", "bf16"};
    (void)train_simulated(job, arguments);
    return run_in(path, arguments);
  };
  const RecordedRun halves = train(on(2, 1), "halves"), whole = train(on(2, 2), "whole");
  CHECK(verify(on(8, 4), halves).entries == 6);
  CHECK_THROWS_AS(verify(on(4, 1), halves), ConfigError);
  CHECK_THROWS_WITH(verify(on(4, 1), halves),
                    Catch::Contains("the run has gradients compressed to \"bf16 between nodes of 4 shards\", and here "
                                    "they are compressed to \"bf16 between nodes of 2 shards\": their bits cannot be "
                                    "compared; expected the same shards on each node"));
  CHECK_THROWS_WITH(verify(1, halves), Catch::Contains("and here they are not compressed: their bits"));
  // On one node nothing was rounded.
  CHECK(verify(1, whole).entries == 6);
  CHECK_THROWS_WITH(verify(on(2, 1), whole), Catch::Contains("the run has gradients not compressed, and here"));
}

TEST_CASE("the step in which two runs begin to differ is found between the entries of their ledgers") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const auto run = [&](const char* name, const Arguments& more = {}) {
    const Arguments arguments = recorded(folder.path() / name) + more;
    (void)train_simulated(1, arguments);
    return run_in(folder.path() / name, arguments);
  };
  const RecordedRun one = run("one"), other = run("other", {"--learning-rate", "0.02"});
  CHECK_FALSE(bisect::first_difference(one.ledger, one.ledger));
  const std::optional<bisect::Interval> between = bisect::first_difference(one.ledger, other.ledger);
  REQUIRE(between);
  CHECK(between->same == 0);
  CHECK(between->differs == 3);
  // Both have the gradients of the first step, and update by another rate.
  const Range steps{between->same + 1, between->differs};
  CHECK(bisect::first_difference(record_again(2, one, steps), record_again(1, other, steps)) ==
        "step 1: the weights after it");
}
