// A training that fails in the middle and goes on, again and again, on other numbers of simulated ranks, ends in the
// bytes of one that was never disturbed. Kills of real processes are in tests/faults.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "apps/image_files.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "apps/simulated_training.hpp"
#include "support/child_process.hpp"
#include "support/quiet_log.hpp"
#include "support/refused_options.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

template <class T>
concept RunsTwice = requires(T& trainer) { trainer.train(); } || requires(T& trainer) { trainer.evaluate(); } ||
                    requires(T& trainer) { trainer.predict(); };
static_assert(!RunsTwice<Trainer>, "a second run would begin with what the first has left");

/// Writes `checkpoint` into another folder, as older versions wrote it.
void forget_metadata(const std::filesystem::path& checkpoint, const std::filesystem::path& folder) {
  Manifest manifest = read_checkpoint(checkpoint);
  std::vector<Tensor> kept;
  std::vector<TensorFile> files;
  for (const Manifest::File& each : manifest.files) {
    const OpenTensorFile file = open_checkpoint_file(checkpoint, manifest, each.name);
    TensorFile& copied = files.emplace_back(TensorFile{.name = each.name});
    for (const safetensors::Entry& entry : file.entries()) {
      kept.push_back(file.read(entry));
      copied.tensors.push_back({entry.name, kept.back().view()});
    }
  }
  manifest.metadata.clear();
  manifest.files.clear();
  write_checkpoint(folder, manifest, files);
}

// A signal handler can reach only globals.
std::atomic<Strategy*> strategy_of_signalled{nullptr};
std::atomic<const char*> file_lost_at_stop{nullptr};

/// What a training is whose rank is told in a step, counted from 1, to stop: the same on all ranks.
FitResult told_to_stop_in(std::int64_t step, int ranks, int rank, const Arguments& arguments) {
  ::setenv("LOCKSTEP_FAULT", fmt::format("usr1:{}:{}", rank, step - 1).c_str(), 1);
  std::signal(SIGUSR1, [](int) {
    if (const char* const file = file_lost_at_stop) ::unlink(file);
    strategy_of_signalled.load()->request_stop();
  });
  const CommandLine line = parse(arguments);
  std::vector<FitResult> results(static_cast<std::size_t>(ranks));
  sim::run({.ranks = ranks, .report = [](std::string_view) {}, .reductions = line.runtime.reductions},
           [&](Strategy& strategy, int mine) {
             if (mine == rank) strategy_of_signalled = &strategy;
             results[static_cast<std::size_t>(mine)] = Trainer{strategy, "cpu", line.training}.train().fit;
           });
  std::signal(SIGUSR1, SIG_DFL);
  ::unsetenv("LOCKSTEP_FAULT");
  for (const FitResult& result : results) {
    CHECK(result.steps == results.front().steps);
    CHECK(result.stopped == results.front().stopped);
  }
  return results.front();
}

/// Where checkpoints and metrics are.
enum class Places { folder_of_run, named };

/// Of 12 steps. Some of the starts also have the options `sometimes`.
void check_resumed(const Arguments& run, Places places = Places::named, const Arguments& sometimes = {}) {
  const Arguments arguments = run + Arguments{"--steps", "12", "--eval-every", "5", "--quiet"};
  const Trained whole = train_simulated(1, arguments);
  const TemporaryDirectory folder;
  const Arguments named{"--checkpoint-dir", folder.path() / "checkpoints", "--metrics", folder.path() / "metrics"};
  const Arguments of_run{"--run-dir", folder.path() / "run"};
  const Arguments going_on =
      arguments + (places == Places::named ? named : of_run) + Arguments{"--checkpoint-every", "2", "--resume", "auto"};
  fail_in(2, 2, going_on);  // before there is a checkpoint
  fail_in(6, 2, going_on + sometimes);
  fail_in(8, 8, going_on);
  fail_in(12, 1, going_on);
  check_same(whole, train_simulated(4, going_on + sometimes));
  // Nothing is left to do.
  check_same(whole, train_simulated(2, going_on));
  if (places == Places::named) return;
  const std::string timeline = read_file(folder.path() / "run/timeline.jsonl");
  CHECK(lines_starting_with(timeline, R"({"kind":"start")").size() == 6);
  CHECK(lines_starting_with(timeline, R"({"kind":"end")").size() == 2);
  CHECK(std::filesystem::exists(folder.path() / "run/weights.safetensors"));
  const Json description = Json::parse(read_file(folder.path() / "run/run.json"));
  CHECK(description.at("options").at("optimizer") == "momentum");
  CHECK(description.at("options").at("steps") == 12);
  CHECK(description.at("data").at("samples") == 90);
  CHECK(description.at("paths").at("checkpoints") == "checkpoints");
  CHECK(description.at("result").at("weights_digest") == whole.digest());
}

}  // namespace

TEST_CASE("an mlp goes on with everything on") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  check_resumed({"--data", images.path(), "--hidden", "9", "--global-batch", "37", "--weight-decay", "0.05",
                 "--schedule", "cosine", "--warmup-steps", "3", "--clip-norm", "0.7", "--accumulate", "2"},
                Places::folder_of_run);
}

TEST_CASE("a training goes on with an optimizer in slices and without, on other numbers of ranks") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  check_resumed({"--data", images.path(), "--hidden", "301", "--global-batch", "37", "--optimizer", "adamw",
                 "--weight-decay", "0.05", "--schedule", "cosine", "--clip-norm", "0.7", "--attest-every", "3"},
                Places::named, {"--shard-optimizer"});
}

TEST_CASE("a convnet goes on with batch norm and dropout") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const char* const norm = GENERATE("--batch-norm", "--sync-batch-norm");
  check_resumed({"--data", images.path(), "--model", "convnet", "--global-batch", "16", "--dropout", "0.3", norm});
}

TEST_CASE("a gpt goes on with AdamW") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  check_resumed({"--data", folder.write("text", small_text(2000)), "--model", "gpt", "--layers", "1", "--heads", "2",
                 "--embed", "16", "--context", "16", "--weight-decay", "0.1"});
}

TEST_CASE("a training in bf16 goes on") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  check_resumed({"--data", images.path(), "--model", "convnet", "--global-batch", "16", "--precision", "bf16"});
}

TEST_CASE("a training that one rank is told to stop stops on all after the same step, and goes on from there") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const Arguments arguments{"--data",  images.path(), "--hidden",     "9", "--global-batch", "16",
                            "--steps", "12",          "--eval-every", "5", "--quiet"};
  const Trained whole = train_simulated(1, arguments);
  const Arguments going_on =
      arguments + Arguments{"--checkpoint-dir", folder.path() / "checkpoints", "--resume", "auto",
                            "--metrics",        folder.path() / "metrics",     "--export", folder.path() / "weights"};
  std::mt19937 random{std::random_device{}()};
  std::int64_t step = 0;
  for (const int ranks : {2, 8, 4}) {
    step += 1 + static_cast<std::int64_t>(random() % 3);
    const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
    CAPTURE(step, ranks, rank);
    const FitResult stopped = told_to_stop_in(step, ranks, rank, going_on);
    CHECK((stopped.stopped && stopped.steps == step));
    CHECK(std::filesystem::exists(folder.path() / "checkpoints" / fmt::format("step-{}", step)));
    CHECK(!std::filesystem::exists(folder.path() / "weights"));
  }
  // Before the first step there is nothing to save, and after the last one nothing to stop.
  sim::run({.ranks = 2, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
    if (rank == 1) strategy.request_stop();
    const FitResult stopped = Trainer{strategy, "cpu", parse(going_on).training}.train().fit;
    CHECK((stopped.stopped && stopped.steps == step));
  });
  const FitResult done = told_to_stop_in(12, 4, 2, going_on);
  CHECK((!done.stopped && done.steps == 12));
  CHECK(std::filesystem::exists(folder.path() / "weights"));
  check_same(whole, train_simulated(1, going_on));
}

TEST_CASE("a training that is told to stop and has lost a file fails, and says that its checkpoint is complete") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::string checkpoints = folder.path() / "checkpoints", metrics = folder.path() / "metrics";
  const Arguments arguments{"--data",  images.path(),      "--hidden",  "9",         "--steps", "12",
                            "--quiet", "--checkpoint-dir", checkpoints, "--metrics", metrics};
  file_lost_at_stop = metrics.c_str();
  CHECK_THROWS_WITH(
      told_to_stop_in(2, 2, 1, arguments),
      Catch::EndsWith("metrics: was removed, renamed or replaced while the run wrote to it; stopped after "
                      "step 2, as a signal asked, and " +
                      checkpoints + "/step-2 is complete: to go on, give the same command with --resume auto"));
  file_lost_at_stop = nullptr;
  std::signal(SIGUSR1, SIG_DFL);
  ::unsetenv("LOCKSTEP_FAULT");
  CHECK(train_simulated(1, arguments + Arguments{"--resume", "auto"}).result["steps"] == 12);
}

TEST_CASE("a training goes on from a checkpoint of its own alone, and begins anew only where there is none") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::string checkpoints = folder.path() / "checkpoints";
  const Arguments run{"--data", images.path(), "--quiet", "--hidden", "5"};
  const Arguments two = run + Arguments{"--steps", "2", "--checkpoint-dir", checkpoints};
  const Trained first = train_simulated(2, two);
  CHECK_THROWS_WITH(train_simulated(2, two), Catch::Contains("holds checkpoints of an earlier training"));
  // A longer training of the same kind is another beginning of it.
  const Arguments four = run + Arguments{"--steps", "4"};
  const Arguments from = {"--resume", checkpoints + "/step-2"};
  const Arguments unnamed{"--data", images.path(), "--quiet", "--steps", "4"};
  const std::string ended = train_simulated(2, four).digest();
  CHECK(train_simulated(1, four + from).digest() == ended);
  CHECK(train_simulated(1, unnamed + from).digest() == ended);  // the model is the checkpoint's
  CHECK(std::filesystem::exists(checkpoints + "/step-2"));
  CHECK_FALSE(std::filesystem::exists(checkpoints + "/step-4"));
  const auto trains = [](const Arguments& arguments) { (void)train_simulated(2, arguments); };
  const auto goes_on = [&](const Arguments& more) { trains(unnamed + more + from); };
  check_all_refused(
      {{{"--hidden", "6"}, {"--hidden 6: contradicts " + checkpoints + "/step-2, which has --hidden 5; expected the"}},
       {{"--model", "convnet"}, {"--model convnet: contradicts " + checkpoints + "/step-2, which has --model mlp"}},
       {{"--classes", "11"}, {"--classes 11: contradicts"}},
       {{"--precision", "bf16"}, {"--precision bf16: contradicts"}},
       {{"--dtype", "f64"}, {"--dtype f64: contradicts"}},
       {{"--layers", "2"}, {"--layers: expected only with --model gpt"}}},
      goes_on);
  check_all_refused<CheckpointError>({{{"--seed", "2"}, {"seed 1, and this one has 2"}},
                                      {{"--shards", "4"}, {"shards 8, and this one has 4"}},
                                      {{"--clip-norm", "1"}, {"clip norm none, and this one has"}}},
                                     goes_on);
  check_all_refused(
      {{Arguments{"--steps", "1"} + from,
        {"the run has 1 step, of which 2 are made; expected as many or more (--steps, --epochs)"}},
       {{"--checkpoint-dir", images.path() + "/t10k-labels-idx1-ubyte"}, {"expected a folder that can be written"}}},
      [&](const Arguments& more) { trains(run + more); });
}

TEST_CASE("a checkpoint that does not say what its model and data are goes on as it is told") {
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::filesystem::path first = folder.path() / "first", older = folder.path() / "older" / "step-2";
  const Arguments run{"--data", images.path(), "--quiet", "--hidden", "5"}, four{"--steps", "4"};
  const Trained whole =
      train_simulated(1, run + four + Arguments{"--checkpoint-dir", first, "--checkpoint-every", "2"});
  forget_metadata(first / "step-2", older.parent_path());
  const Arguments from{"--resume", older};
  {
    CapturedStderr captured;
    CHECK(train_simulated(2, run + four + from).digest() == whole.digest());
    const std::string told = older.string() + " does not say what its model and data are", text = captured.text();
    CHECK(text.find(told) != std::string::npos);
    CHECK(text.find(told) == text.rfind(told));
  }
  const QuietLog quiet;
  CHECK_THROWS_WITH(
      train_simulated(2, Arguments{"--data", images.path(), "--quiet"} + four + from),
      Catch::Contains("model mlp of 5 hidden units for 10 classes, and this one has mlp of 512,512 hidden"));
}

TEST_CASE("what --override names is the training's from then on, with the same bits on any number of ranks") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::string first = folder.path() / "first", second = folder.path() / "second";
  const Arguments run{"--data", images.path(), "--quiet", "--hidden", "5", "--schedule", "cosine"};
  const Arguments slow{"--learning-rate", "0.02", "--steps", "4"}, fast{"--learning-rate", "0.05", "--steps", "8"};
  (void)train_simulated(2, run + slow + Arguments{"--checkpoint-dir", first, "--checkpoint-every", "2"});
  const Arguments from{"--resume", first + "/step-2"};
  CHECK_THROWS_WITH(train_simulated(1, run + fast + from),
                    Catch::Contains("learning rate 0.02, and this one has 0.05; --override learning-rate --override "
                                    "steps goes on with the new values"));
  const Arguments changed = run + fast + from + Arguments{"--override", "learning-rate", "--override", "steps"};
  const Trained one = train_simulated(1, changed);
  check_same(one, train_simulated(4, changed + Arguments{"--checkpoint-dir", second, "--checkpoint-every", "3"}));
  CHECK(one.digest() != train_simulated(1, run + slow + from).digest());
  CHECK(one.metrics.front()["learning_rate"].get<double>() > 0.02);  // in step 3, of a peak of 0.05
  // Later checkpoints hold the new values, and agree without --override.
  const Arguments later{"--resume", second + "/step-6"};
  CHECK(train_simulated(2, run + fast + later).digest() == one.digest());
  CHECK_THROWS_WITH(train_simulated(2, run + Arguments{"--learning-rate", "0.02", "--steps", "8"} + later),
                    Catch::Contains("learning rate 0.05, and this one has 0.02"));
}

TEST_CASE("a moving average that is alike on seven ranks is saved as it is") {
  // The fixed order adds seven of them up to a sum whose seventh is another number.
  float alike = 0.1F;
  while ((4 * alike + (2 * alike + alike)) / 7 == alike) alike = std::nextafter(alike, 1.0F);
  const TemporaryDirectory folder;
  sim::run({.ranks = 7}, [&](Strategy& strategy, int) {
    const auto average = strategy.create_sync_on_read({.aggregation = Variable::Aggregation::mean},
                                                      [&] { return Tensor::scalar(alike); });
    strategy.seal();
    CHECK(StrategyExtended{strategy}.read_var(average).to_vector<float>().front() != alike);
    CheckpointManager checkpoints{strategy, {.folder = folder.path() / "checkpoints"}};
    checkpoints.save(1);
    average.assign(Tensor::scalar(0.0F));
    (void)checkpoints.resume_latest();
    CHECK(average.local().to_vector<float>().front() == alike);
  });
}
