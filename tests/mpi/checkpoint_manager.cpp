// Checkpoints of a strategy that several ranks write and go on from. What the ranks hold differs where it may.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "shared_folder.hpp"
#include "support/quiet_log.hpp"
#include "support/ranks.hpp"
#include "sync/checkpoint/exclusive_use.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

/// A variable, the momentum of its optimizer, a mean that is alike on all ranks, and a sum that is not.
struct ManagedProgram {
  Strategy strategy = runtime().make_strategy();
  MirroredVariable weights = strategy.create_variable({.name = "w"}, [] { return Tensor::from({1.0F, 2.0F}, {2}); });
  SyncOnReadVariable mean = strategy.create_sync_on_read({.name = "mean", .aggregation = Variable::Aggregation::mean},
                                                         [] { return Tensor::scalar(0.1F); });
  SyncOnReadVariable sum = strategy.create_sync_on_read({.name = "sum", .aggregation = Variable::Aggregation::sum},
                                                        [] { return Tensor::scalar(0.0); });
  Sgd sgd{{.learning_rate = 0.5, .momentum = 0.5}};

  ManagedProgram() {
    strategy.seal();
    sgd.prepare(strategy, {weights});
  }

  void step() {
    strategy.run([&](ReplicaContext& context) {
      sgd.apply_gradients(context, {{Tensor::from({1.0F, static_cast<float>(rank())}, {2}), weights}});
      sum.assign_add(Tensor::scalar(1.0 + rank()));
    });
  }

  std::vector<float> values() const { return weights.local().to_vector<float>(); }
};

CheckpointManager::Options in(const SharedFolder& folder, const TrainingFacts& training = {{"seed", "1"}}) {
  return {.folder = folder / "checkpoints", .every = 2, .keep = 2, .training = training, .kernels = "some"};
}

/// What every rank says of a failure of the chief.
template <class Body>
std::string error_of(Body&& body) {
  return runtime().is_chief() ? message_of<CheckpointError>(body) : message_of<PeerError>(body);
}

/// On the chief, between two moments at which all ranks are here.
template <class Work>
void on_chief_alone(Work&& work) {
  (void)runtime().strategy().same_on_all(1);
  if (runtime().is_chief()) work();
  (void)runtime().strategy().same_on_all(2);
}

}  // namespace

TEST_CASE("a training that goes on is as if it had not stopped") {
  const SharedFolder folder;
  ManagedProgram whole;
  CheckpointManager checkpoints{whole.strategy, in(folder)};
  CHECK_FALSE(checkpoints.has_checkpoints());
  CHECK_FALSE(checkpoints.resume_latest());
  int asked = 0;
  for (std::int64_t step = 1; step <= 5; ++step) {
    whole.step();
    checkpoints.after_step(step, [&] {
      ++asked;
      return ProgramState{{"told", "step " + std::to_string(step)}};
    });
  }
  checkpoints.finish();
  CHECK(asked == (runtime().is_chief() ? 2 : 0));
  CHECK(checkpoints.has_checkpoints());

  ManagedProgram other;
  CheckpointManager manager{other.strategy, in(folder)};
  const auto resumed = manager.resume_latest();
  REQUIRE(resumed);
  CHECK(resumed->step == 4);
  CHECK(resumed->state == ProgramState{{"told", "step 4"}});
  CHECK(resumed->checkpoint == folder / "checkpoints" / "step-4");
  CHECK(StrategyExtended{other.strategy}.read_var(other.sum).to_vector<double>().front() == 4 * triangle());
  CHECK(other.sgd.steps(other.strategy) == 4);
  other.step();
  CHECK(inside(runtime().strategy()).group().meeting().position().step == 5);
  CHECK(other.values() == whole.values());

  ManagedProgram third;
  CheckpointManager anywhere{third.strategy, in(folder)};
  CHECK(anywhere.resume(folder / "checkpoints" / "step-2").step == 2);
  CHECK(anywhere.resume(folder / "checkpoints" / "latest").checkpoint.filename() == "step-4");
}

TEST_CASE(
    "steps are counted from the checkpoint of a training, not from that of weights alone, or as the program says") {
  const SharedFolder folder;
  ManagedProgram program;
  CheckpointManager checkpoints{program.strategy, in(folder)};
  checkpoints.save(700);
  checkpoints.finish();
  const auto next_step = [&] {
    program.step();
    return inside(runtime().strategy()).group().meeting().position().step;
  };
  REQUIRE(checkpoints.resume_latest());
  CHECK(next_step() == 701);
  CHECK(next_step() == 702);
  CHECK(checkpoints.resume(folder / "checkpoints" / "step-700").step == 700);
  CHECK(next_step() == 701);
  CheckpointManager::Options options = in(folder);
  options.weights_only = true;
  CheckpointManager weights{program.strategy, options};
  REQUIRE(weights.resume_latest());
  CHECK(next_step() == 702);
  const auto named = inside(runtime().strategy()).group().meeting().keep_named_steps();
  program.strategy.set_step(9);
  REQUIRE(checkpoints.resume_latest());
  CHECK(next_step() == 9);
}

TEST_CASE("a mean that is alike on all ranks is saved as it is, and another as the mean") {
  const SharedFolder folder;
  ManagedProgram program;
  const float alike = 0.1F;
  CheckpointManager checkpoints{program.strategy, in(folder)};
  checkpoints.save(1);
  copy(Tensor::scalar(odd_one() ? 5.0F : 2.0F).view(), program.mean.local(), program.strategy.stream());
  checkpoints.save(2);
  checkpoints.finish();

  ManagedProgram other;
  CheckpointManager manager{other.strategy, in(folder)};
  (void)manager.resume(folder / "checkpoints" / "step-1");
  CHECK(other.mean.local().to_vector<float>().front() == alike);
  (void)manager.resume(folder / "checkpoints" / "step-2");
  CHECK(other.mean.local().to_vector<float>().front() ==
        (2.0F * static_cast<float>(ranks() - 1) + 5.0F) / static_cast<float>(ranks()));
}

TEST_CASE("what cannot be restored is passed over, and another training's is refused") {
  const SharedFolder folder;
  const fs::path all = folder / "checkpoints";
  ManagedProgram program;
  CheckpointManager checkpoints{program.strategy, in(folder)};
  checkpoints.save(1);
  program.step();
  checkpoints.save(2);
  checkpoints.finish();
  const QuietLog quiet;

  CheckpointManager other_seed{program.strategy, in(folder, {{"seed", "2"}})};
  CHECK_THAT(error_of([&] { (void)other_seed.resume_latest(); }),
             Catch::Contains("step-2: is of a training with seed 1, and this one has 2"));

  const std::vector<float> after_one = program.values();
  on_chief_alone([&] { fs::resize_file(all / "step-2" / "weights.safetensors", 60); });
  CHECK(checkpoints.resume_latest()->step == 1);
  CHECK(program.values() == std::vector<float>{1, 2});
  CHECK_THAT(error_of([&] { (void)checkpoints.resume(all / "step-2"); }),
             Catch::Contains("weights.safetensors: has 60 bytes; expected "));

  CHECK_THAT(error_of([&] { (void)checkpoints.resume(all); }),
             Catch::Contains("is a folder of checkpoints; expected one of them, such as step-2"));

  on_chief_alone([&] { fs::remove(all / "step-1" / "manifest.json"); });
  CHECK_THAT(error_of([&] { (void)checkpoints.resume_latest(); }),
             Catch::Contains("has 60 bytes") && Catch::Contains("; none of the 2 checkpoints in "));
  // The ranks are still in step, and nothing was set.
  CHECK(program.values() == std::vector<float>{1, 2});
  program.step();
  CHECK(program.values() == after_one);
}

TEST_CASE("what the program cannot go on from, or nobody could read, is passed over, and refused when it is named") {
  const SharedFolder folder;
  const fs::path all = folder / "checkpoints";
  ManagedProgram program;
  CheckpointManager::Options options = in(folder);
  options.keep = 3;
  options.check = [](const CheckpointManager::Resumed& resumed) {
    if (resumed.state.at("of step") != std::to_string(resumed.step)) throw Error{"is of another step"};
  };
  CheckpointManager checkpoints{program.strategy, options};
  for (const std::int64_t step : {1, 2, 3})
    checkpoints.save(step, {{"of step", step == 2 ? "3" : std::to_string(step)}});
  checkpoints.finish();
  on_chief_alone([&] { folder.write("checkpoints/step-3/manifest.json", std::string(80'000, '[')); });
  const QuietLog quiet;
  CHECK(checkpoints.resume_latest()->step == 1);
  CHECK_THAT(error_of([&] { (void)checkpoints.resume(all / "step-2"); }),
             Catch::Contains("step-2: is of another step"));
  CHECK_THAT(error_of([&] { (void)checkpoints.resume(all / "step-3"); }),
             Catch::Contains("is no manifest: it is nested more than 32 levels deep"));
}

TEST_CASE("a checkpoint that cannot be written fails on all ranks, or where it is optional on none") {
  const SharedFolder folder;
  folder.write("checkpoints", "a file in the way");
  ManagedProgram program;
  CheckpointManager::Options options = in(folder);
  CheckpointManager required{program.strategy, options};
  required.save(1);
  CHECK_THAT(error_of([&] { required.finish(); }),
             Catch::Contains("checkpoints: is a regular file; expected a folder"));
  required.finish();  // it has been told
  options.optional = true;
  CheckpointManager optional{program.strategy, options};
  const QuietLog quiet;
  optional.save(1);
  optional.save(2);
  optional.finish();
  CHECK(program.strategy.same_on_all(7).value() == 7);
}

TEST_CASE("a checkpoint that cannot be written ends the steps that follow it") {
  const SharedFolder folder;
  folder.write("checkpoints", "a file in the way");
  ManagedProgram program;
  CheckpointManager checkpoints{program.strategy, in(folder)};
  CHECK_THAT(error_of([&] {
               for (std::int64_t step = 2;; ++step) {
                 program.step();
                 if (step == 2) checkpoints.save(step);
                 // Steps that do not save: a rank that is told nothing would go on for ever.
                 checkpoints.after_step(2 * step + 1);
               }
             }),
             Catch::Contains("checkpoints: is a regular file; expected a folder"));
  CHECK(program.strategy.same_on_all(7).value() == 7);
}

TEST_CASE("a folder that another process writes to is refused on all ranks, and read all the same") {
  const SharedFolder folder;
  ManagedProgram program;
  {
    CheckpointManager checkpoints{program.strategy, in(folder)};
    checkpoints.save(1);
    checkpoints.finish();
  }
  std::unique_ptr<ExclusiveUse> other;  // an open file of its own, as another process has one
  on_chief_alone([&] {
    other = std::make_unique<ExclusiveUse>(
        ExclusiveUse::Options{.file = folder / "checkpoints" / ".lock", .lease = "", .name = "other", .expected = ""});
  });
  CheckpointManager refused{program.strategy, in(folder)};
  const auto check_refused = [&](auto&& call) {
    const std::string told = runtime().is_chief() ? message_of<ConfigError>(call) : message_of<PeerError>(call);
    CHECK_THAT(told, Catch::Contains("the checkpoint folder ") &&
                         Catch::Contains("checkpoints is in use by process ") &&
                         Catch::Contains("expected a folder that no other training uses"));
  };
  check_refused([&] { (void)refused.has_checkpoints(); });
  check_refused([&] { (void)refused.resume_latest(); });
  const auto saving = [](CheckpointManager& checkpoints) {
    return [&checkpoints] {
      checkpoints.save(2);
      checkpoints.finish();  // where the other ranks hear of it
    };
  };
  check_refused(saving(refused));
  CheckpointManager::Options options = in(folder);
  options.every = {};
  CheckpointManager reads{program.strategy, options};
  CHECK(reads.has_checkpoints());
  CHECK(reads.resume_latest()->step == 1);
  check_refused(saving(reads));
  on_chief_alone([&] { other.reset(); });
  saving(refused)();
  CHECK(refused.resume_latest()->step == 2);
}

TEST_CASE("steps that follow do not change what is written") {
  const SharedFolder folder;
  ManagedProgram program;
  CheckpointManager checkpoints{program.strategy, in(folder)};
  std::vector<std::vector<float>> values;
  for (std::int64_t step = 0; step < 2; ++step) {
    values.push_back(program.values());
    checkpoints.save(step);
    for (int more = 0; more < 3; ++more) program.step();
  }
  checkpoints.finish();
  for (const std::int64_t step : {0, 1}) {
    (void)checkpoints.resume(folder / "checkpoints" / ("step-" + std::to_string(step)));
    CHECK(program.values() == values[static_cast<std::size_t>(step)]);
  }
}

TEST_CASE("the checkpoint with the lowest loss stays, through a resume") {
  const SharedFolder folder;
  ManagedProgram program;
  CheckpointManager checkpoints{program.strategy, in(folder)};
  CHECK_FALSE(checkpoints.is_best(std::nan("")));
  checkpoints.save(1, {}, 0.5);
  CHECK(checkpoints.has_checkpoints());  // also while it is being written
  checkpoints.save(2, {}, 0.25);
  checkpoints.save(3);
  checkpoints.save(4, {}, 0.25);
  CheckpointManager resumed{program.strategy, in(folder)};
  checkpoints.finish();
  CHECK(resumed.is_best(1));
  REQUIRE(resumed.resume_latest()->step == 4);
  CHECK_FALSE(resumed.is_best(0.25));
  CHECK(resumed.is_best(0.24));
  resumed.save(5, {}, std::nan(""));
  resumed.save(6);
  resumed.finish();
  on_chief_alone([all = folder / "checkpoints"] {
    CHECK(fs::read_symlink(all / "best") == "step-2");
    CHECK(fs::exists(all / "step-2"));
    CHECK_FALSE(fs::exists(all / "step-4"));
    CHECK(fs::exists(all / "step-5"));
  });
  // The best one of another folder is none here, also where a checkpoint has its name.
  CheckpointManager::Options options = in(folder);
  options.folder = folder / "others";
  CheckpointManager others{program.strategy, options};
  others.save(2);
  others.finish();
  (void)others.resume(folder / "checkpoints" / "step-6");
  CHECK(others.is_best(1));
}

TEST_CASE("metadata are read before there is a variable, from a file, a checkpoint, or the newest readable one") {
  const SharedFolder folder;
  const fs::path all = folder / "checkpoints";
  Strategy empty = runtime().make_strategy();
  CHECK_FALSE(read_weights_metadata(empty, all));
  ManagedProgram program;
  for (const std::int64_t step : {1, 2}) {
    CheckpointManager::Options options = in(folder);
    options.metadata = {{"model", "small"}, {"made after", std::to_string(step)}};
    CheckpointManager checkpoints{program.strategy, options};
    checkpoints.save(step);
    checkpoints.finish();
  }
  save_weights(program.strategy, folder / "w", {{"model", rank() == 0 ? "the chief's" : "another"}});
  const auto read = [&](const fs::path& path) { return read_weights_metadata(empty, path).value(); };
  CHECK(read(folder / "w") == WeightsMetadata{{"model", "the chief's"}});
  CHECK(read(all / "step-1") == WeightsMetadata{{"made after", "1"}, {"model", "small"}});
  CHECK(read(all / "step-1" / "weights.safetensors") == read(all / "step-1"));
  CHECK(read(all) == read(all / "step-2"));
  const auto loaded = load_weights(program.strategy, folder / "w");
  CHECK(loaded.metadata == read(folder / "w"));
  CHECK(loaded.rest == "");
  CHECK(load_weights(program.strategy, all / "latest").metadata == read(all / "step-2"));

  on_chief_alone([&] { fs::resize_file(all / "step-2" / "manifest.json", 60); });
  CHECK(read(all) == read(all / "step-1"));
  CHECK_THAT(error_of([&] { (void)read(all / "step-2"); }), Catch::Contains("step-2/manifest.json: is no manifest"));
  on_chief_alone([&] { fs::remove(all / "step-1" / "manifest.json"); });
  CHECK_THAT(error_of([&] { (void)read(all); }), Catch::Contains("; none of the 2 checkpoints in "));
}

TEST_CASE("checkpoints without a folder, or of no steps, are refused") {
  Strategy& strategy = runtime().strategy();
  CHECK_THROWS_AS(CheckpointManager(strategy, {}), InvalidArgument);
  CHECK_THROWS_AS(CheckpointManager(strategy, {.folder = "x", .every = 0}), InvalidArgument);
  CHECK_THROWS_AS(CheckpointManager(strategy, {.folder = "x", .keep = 0}), InvalidArgument);
  CHECK_THROWS_AS(CheckpointManager(strategy, {.folder = "x", .metadata = {{"model", "\xff"}}}), InvalidArgument);
  CHECK_THROWS_AS(save_weights(strategy, "x", {{"writer", "me"}}), InvalidArgument);
}
