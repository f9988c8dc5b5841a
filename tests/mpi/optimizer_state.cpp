// What optimizers keep from step to step: the same on every rank, in checkpoints, and agreed on.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/control/meeting_point.hpp"
#include "shared_folder.hpp"
#include "support/quiet_log.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A weight and a bias of two types, and gradients that differ with the step and on every rank.
struct StatefulProgram {
  Strategy strategy = runtime().make_strategy();
  MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::from({1.0F, -2.0F}, {2, 1}); });
  MirroredVariable b = strategy.create_variable({.name = "b"}, [] { return Tensor::from({0.5}, {1}); });

  StatefulProgram() { strategy.seal(); }

  void steps(Optimizer& optimizer, int first, int last) {
    for (int step = first; step < last; ++step)
      strategy.run([&](ReplicaContext& context) {
        const auto size = static_cast<float>(step % 3 + 1 + rank());
        optimizer.apply_gradients(
            context,
            {{Tensor::from({size, -0.3F * size}, {2, 1}), w}, {Tensor::from({static_cast<double>(size) / 7}, {1}), b}},
            std::int64_t{rank() + 1});
      });
  }

  void step_on_w(Optimizer& optimizer) { step(optimizer, {Tensor::from({1.0F, -2.0F}, {2, 1}), w}); }
  void step_on_b(Optimizer& optimizer) { step(optimizer, {Tensor::from({1.0}, {1}), b}); }

  std::vector<double> values() const {
    std::vector<double> all = b.local().to_vector<double>();
    for (const float each : w.local().to_vector<float>()) all.push_back(each);
    return all;
  }

 private:
  void step(Optimizer& optimizer, const Optimizer::Gradient& gradient) {
    strategy.run([&](ReplicaContext& context) { optimizer.apply_gradients(context, {gradient}); });
  }
};

const LearningRate rate{{.peak = 0.1, .warmup_steps = 3, .decay_steps = 12}};

AdamW::Options adamw_options() {
  return {.learning_rate = rate, .weight_decay = 0.1, .clip_norm = 0.6};
}
Sgd::Options momentum_options() {
  return {.learning_rate = rate, .momentum = 0.9, .weight_decay = 0.1, .clip_norm = 0.6};
}

/// What every rank says of a checkpoint that is not restored; empty if it is.
std::string refusal(Strategy& strategy, const std::filesystem::path& path) {
  try {
    restore_checkpoint(strategy, path);
  } catch (const CheckpointError& error) {
    return error.what();
  } catch (const PeerError& error) {
    return error.what();
  }
  return {};
}

/// Trains, saves half way and restores into a program that has made no step, or some others.
void check_resumed(const std::function<std::unique_ptr<Optimizer>()>& make, int steps_before) {
  const SharedFolder folder;
  StatefulProgram whole;
  const auto optimizer = make();
  whole.steps(*optimizer, 0, 5);
  save_checkpoint(whole.strategy, folder / "half");
  whole.steps(*optimizer, 5, 10);

  StatefulProgram resumed;
  const auto another = make();
  another->prepare(resumed.strategy, {resumed.w, resumed.b});
  resumed.steps(*another, 20, 20 + steps_before);
  restore_checkpoint(resumed.strategy, folder / "half");
  CHECK(another->steps(resumed.strategy) == 5);
  resumed.steps(*another, 5, 10);
  CHECK(resumed.values() == whole.values());
  CHECK(another->steps(resumed.strategy) == 10);
  resumed.strategy.attest();
}

}  // namespace

TEST_CASE("a run that is resumed from a checkpoint ends in the same bits, with AdamW and with momentum") {
  for (const int steps_before : {0, 2}) {
    check_resumed([] { return std::make_unique<AdamW>(adamw_options()); }, steps_before);
    check_resumed([] { return std::make_unique<Sgd>(momentum_options()); }, steps_before);
  }
}

TEST_CASE("a checkpoint with optimizer state is refused where nothing is prepared for it, and the other way round") {
  const SharedFolder folder;
  StatefulProgram plain;
  save_checkpoint(plain.strategy, folder / "plain");
  StatefulProgram trained;
  AdamW optimizer{adamw_options()};
  trained.steps(optimizer, 0, 1);
  save_checkpoint(trained.strategy, folder / "trained");

  StatefulProgram fresh;
  CHECK_THAT(
      refusal(fresh.strategy, folder / "trained"),
      Catch::Contains("has the entry 'b@first_moment', 'b@second_moment', 'optimizer@steps', 'w@first_moment', "
                      "'w@second_moment'; expected one for each variable and each piece of optimizer state, and "
                      "no other; 'b@first_moment' is state of an optimizer that this program has not prepared: call "
                      "optimizer.prepare(strategy, variables), or make the ReplicatedOptimizer of a torch "
                      "optimizer, before the checkpoint is restored"));
  CHECK_THAT(refusal(trained.strategy, folder / "plain"), Catch::Contains("has no entry 'b@first_moment'"));
  CHECK(refusal(fresh.strategy, folder / "plain").empty());
}

TEST_CASE("a checkpoint in which optimizers count together restores, and each goes on from its count") {
  const QuietLog quiet;
  const SharedFolder folder;
  const auto options = [&] { return CheckpointManager::Options{.folder = folder / "checkpoints"}; };
  {
    StatefulProgram earlier;
    {
      Sgd sgd{momentum_options()};
      earlier.step_on_w(sgd);
    }
    AdamW adamw{adamw_options()};
    earlier.step_on_b(adamw);
    CHECK(adamw.steps(earlier.strategy) == 2);
    save_checkpoint(earlier.strategy, folder / "file");
    CheckpointManager manager{earlier.strategy, options()};
    manager.save(2);
    manager.finish();
  }
  for (const bool managed : {false, true}) {
    StatefulProgram program;
    Sgd sgd{momentum_options()};
    AdamW adamw{adamw_options()};
    sgd.prepare(program.strategy, {program.w});
    adamw.prepare(program.strategy, {program.b});
    if (managed) {
      CHECK(CheckpointManager{program.strategy, options()}.resume_latest()->step == 2);
    } else {
      restore_checkpoint(program.strategy, folder / "file");
    }
    CHECK(sgd.steps(program.strategy) == 2);
    CHECK(adamw.steps(program.strategy) == 2);
    program.step_on_b(adamw);
    CHECK(sgd.steps(program.strategy) == 2);
    CHECK(adamw.steps(program.strategy) == 3);
    program.strategy.attest();
  }
  // A named one has never counted with others.
  StatefulProgram named;
  Sgd sgd{momentum_options()};
  sgd.prepare(named.strategy, {named.w});
  AdamW::Options critic = adamw_options();
  critic.name = "critic";
  AdamW{critic}.prepare(named.strategy, {named.b});
  CHECK_THAT(refusal(named.strategy, folder / "file"), Catch::Contains("has no entry 'critic@steps'"));
}

TEST_CASE("clipping is by the norm of the sum over all ranks, divided by all their samples") {
  Strategy strategy = runtime().make_strategy();
  const auto a = strategy.create_variable({.name = "a"}, [] { return Tensor::zeros(DType::f64, {2}); });
  const auto b = strategy.create_variable({.name = "b"}, [] { return Tensor::zeros(DType::f32, {1}); });
  strategy.seal();
  Sgd optimizer{{.learning_rate = 1, .clip_norm = 2.5}};
  strategy.run([&](ReplicaContext& context) {
    // Each rank's share of 3, 0 and 4 times as many samples as there are; alone, some are below the norm.
    const std::int64_t samples = rank() + 1;
    const auto share = static_cast<double>(samples);
    optimizer.apply_gradients(
        context, {{Tensor::from({3 * share, 0.0}, {2}), a}, {Tensor::from({static_cast<float>(4 * share)}, {1}), b}},
        samples);
  });
  CHECK(a.local().to_vector<double>() == std::vector<double>{-1.5, 0});
  CHECK(b.local().to_vector<float>() == std::vector<float>{-2});
}

TEST_CASE("a step with everything on costs two agreements") {
  StatefulProgram program;
  AdamW optimizer{adamw_options()};
  program.steps(optimizer, 0, 1);
  const auto before = inside(program.strategy).group().meeting().meetings();
  program.steps(optimizer, 1, 3);
  CHECK(inside(program.strategy).group().meeting().meetings() == before + 4);
}

TEST_CASE("ranks that count other steps are a mismatch, which rebroadcast mends") {
  if (ranks() == 1) return;
  StatefulProgram program;
  AdamW optimizer{adamw_options()};
  program.steps(optimizer, 0, 2);
  if (odd_one()) program.strategy.store().counter("optimizer@steps") = 6;
  const std::string words = mismatch_of([&] { program.steps(optimizer, 2, 3); });
  CHECK_THAT(words,
             Catch::Contains("step 3 of 'optimizer' at rate ") && Catch::Contains("step 7 of 'optimizer' at rate "));
  program.strategy.rebroadcast();
  CHECK(optimizer.steps(program.strategy) == 2);
  program.steps(optimizer, 2, 3);
  CHECK(optimizer.steps(program.strategy) == 3);
}

TEST_CASE("rebroadcast gives all ranks the first one's optimizer state") {
  StatefulProgram program;
  AdamW optimizer{adamw_options()};
  program.steps(optimizer, 0, 2);
  const auto first_moment = [&] { return inside(program.strategy.store()).optimizer_state().front(); };
  REQUIRE(first_moment().name == "w@first_moment");
  const std::vector<float> right = first_moment().value.to_vector<float>();
  if (odd_one() && ranks() > 1) {
    const Tensor wrong = Tensor::from({7.0F, 8.0F}, {2, 1});
    copy(wrong.view(), first_moment().value, program.strategy.stream());
  }
  program.strategy.rebroadcast();
  CHECK(first_moment().value.to_vector<float>() == right);
}

TEST_CASE("a rank that fails before its first step can be mended, though the others know of an optimizer") {
  if (ranks() == 1) return;
  StatefulProgram program;
  AdamW optimizer{adamw_options()};
  const auto failing = [&] {
    program.strategy.run([&](ReplicaContext& context) {
      if (odd_one()) throw Error{"a rank on its own"};
      optimizer.apply_gradients(context, {{Tensor::from({1.0F, 1.0F}, {2, 1}), program.w}});
    });
  };
  CHECK_THROWS_AS(failing(), Error);
  program.strategy.rebroadcast();
  program.steps(optimizer, 0, 1);
  CHECK(optimizer.steps(program.strategy) == 1);
}
