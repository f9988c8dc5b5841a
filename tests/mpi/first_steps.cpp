// The first steps of a training attest by themselves: gradients that nobody has summed over the ranks are found there.
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/control/meeting_point.hpp"
#include "mpi/shared_folder.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Two variables that are trained, one that is not, and one that differs by nature.
struct TrainedProgram {
  Strategy strategy;
  std::int64_t elements;
  MirroredVariable w = make("w", true), v = make("v", true), other = make("other", false);
  SyncOnReadVariable own = strategy.create_sync_on_read({.name = "own", .aggregation = Variable::Aggregation::mean},
                                                        [] { return Tensor::from({0.0F}, {1}); });

  explicit TrainedProgram(const ReductionOptions& reductions = {}, std::int64_t of_each = 2)
      : strategy{runtime().make_strategy(reductions)}, elements{of_each} {
    strategy.seal();
  }

  Tensor gradient(float value) const {
    const Tensor gradient = Tensor::zeros(DType::f32, {elements});
    for (float& each : gradient.view().elements<float>()) each = value;
    return gradient;
  }

  /// What a program does to its variables without an optimizer of this library.
  void subtract(const MirroredVariable& variable, float value) {
    const Tensor now = Tensor::on_host(variable.local());
    for (float& each : now.view().elements<float>()) each -= value;
    copy(now.view(), variable.local(), strategy.stream());
    strategy.stream().synchronize();
  }

  /// The words of the DriftError of a run, the same on every rank; empty if there was none.
  template <class Body>
  std::string drift_in(Body&& body, detail::RunKind kind = detail::RunKind::step) {
    strategy.set_step(++runs_, kind);
    return strategy
        .same_on_all(message_of<DriftError>([&] { strategy.run([&](ReplicaContext& context) { body(context); }); }))
        .value();
  }
  /// A run that subtracts what this rank passes.
  std::string drift_after(float value) {
    return drift_in([&](ReplicaContext&) { subtract(w, value); });
  }

 private:
  MirroredVariable make(const char* name, bool trainable) {
    return strategy.create_variable({.name = name, .trainable = trainable},
                                    [&] { return Tensor::zeros(DType::f32, {elements}); });
  }
  std::int64_t runs_ = 0;
};

float own_gradient() {
  return static_cast<float>(1 + rank());
}

}  // namespace

TEST_CASE("an update with gradients that nobody has summed is found in its step, and the message says so", "[C-36]") {
  if (ranks() == 1) return;
  TrainedProgram program;
  for (const int step : {1, 2}) {
    const std::string words = program.drift_after(odd_one() ? 2 : 1);
    const std::string what = " variable 'w' after step " + std::to_string(step);
    CHECK_THAT(words,
               Catch::Contains(what) &&
                   Catch::EndsWith((ranks() > 2 ? ": " : "; ") +
                                   std::string{"most likely its gradient was not summed over the ranks, or ranks "
                                               "used different learning rates"}));
    if (ranks() > 2)
      CHECK_THAT(words, Catch::StartsWith("replica " + std::to_string(last()) + " (") &&
                            Catch::Contains(") differs from the others in" + what));
    program.subtract(program.w, odd_one() ? -1 : 0);
  }
  CHECK(program.drift_after(1) == "");
  expect_in_step();
}

TEST_CASE("two steps attest, at no agreement of their own, and again after a rebroadcast or a restore", "[C-36]") {
  if (ranks() == 1) return;
  TrainedProgram program;
  const auto agreements_of = [&](float value) {
    const auto before = inside(program.strategy).group().meeting().meetings();
    program.strategy.run([&](ReplicaContext&) { program.subtract(program.w, value); });
    return inside(program.strategy).group().meeting().meetings() - before;
  };
  CHECK(agreements_of(1) == 1);
  CHECK(agreements_of(1) == 1);
  CHECK(agreements_of(1) == 1);  // which shows that the second run has changed something
  CHECK(agreements_of(own_gradient()) == 1);
  const SharedFolder folder;
  save_checkpoint(program.strategy, folder / "c");
  for (const bool restores : {true, false}) {
    if (restores)
      restore_checkpoint(program.strategy, folder / "c");
    else
      program.strategy.rebroadcast();
    CHECK(program.drift_after(own_gradient()) != "");
  }
  program.strategy.rebroadcast();
  program.strategy.attest_first(0);
  CHECK(program.drift_after(own_gradient()) == "");
  CHECK_THROWS_WITH(program.strategy.attest_first(-1), "attest_first: -1 steps; expected 0 or more");
}

TEST_CASE("runs that change nothing are not steps, and evaluations are not looked at", "[C-36]") {
  if (ranks() == 1) return;
  for (const int idle : {5, 9}) {
    TrainedProgram program;
    for (int i = 0; i < idle; ++i) CHECK(program.drift_after(0) == "");
    CHECK((program.drift_after(own_gradient()) == "") == (idle > 8));
  }
  TrainedProgram program;
  const auto differ = [&](ReplicaContext&) { program.subtract(program.w, own_gradient()); };
  CHECK(program.drift_in(differ, detail::RunKind::evaluation) == "");
  program.strategy.rebroadcast();
  CHECK(program.drift_in([&](ReplicaContext&) { program.subtract(program.other, own_gradient()); }) == "");
  CHECK(program.drift_in([&](ReplicaContext&) { program.own.assign(Tensor::from({own_gradient()}, {1})); }) == "");
}

TEST_CASE("steps of an optimizer are counted, and what it has summed itself is not called unsummed", "[C-36]") {
  if (ranks() == 1) return;
  const auto step_that_drifts = [](int drifting) {
    TrainedProgram program;
    Sgd sgd{{.learning_rate = 0.5}};
    std::string words;
    for (int step = 1; step <= 3 && words.empty(); ++step)
      words = program.drift_in([&](ReplicaContext& context) {
        sgd.apply_gradients(context, {{program.gradient(own_gradient()), program.w}});
        if (step == drifting && odd_one()) program.subtract(program.w, 1);
        if (step == -drifting && odd_one()) program.subtract(program.v, 1);
      });
    return words;
  };
  CHECK_THAT(step_that_drifts(1),
             Catch::Contains("variable 'w' after step 1") &&
                 Catch::EndsWith("its gradient was summed over the ranks, so something else has changed it on a rank"));
  CHECK_THAT(step_that_drifts(2), Catch::Contains("variable 'w' after step 2"));
  CHECK(step_that_drifts(3) == "");
  CHECK_THAT(step_that_drifts(-1), Catch::Contains("variable 'v' after step 1") &&
                                       Catch::Contains("most likely its gradient was not summed over the ranks"));
}

TEST_CASE("gradients that are said to be the same are compared, also where a slice of each reaches all ranks",
          "[C-36]") {
  if (ranks() == 1) return;
  for (const bool in_slices : {false, true}) {
    CAPTURE(in_slices);
    ReductionOptions reductions;
    reductions.shard_optimizer = in_slices;
    TrainedProgram program{reductions, 40'000};
    Sgd sgd{{.learning_rate = 0.5, .momentum = 0.5}};
    const auto step = [&](float own) {
      return program.drift_in([&](ReplicaContext& context) {
        sgd.apply_reduced_gradients(context, {{program.gradient(2), program.v}, {program.gradient(own), program.w}});
      });
    };
    CHECK(step(3) == "");
    CHECK(program.drift_in([](ReplicaContext&) {}) == "");  // no step
    CHECK_THAT(
        step(odd_one() ? 3 : 4),
        Catch::Contains(ranks() > 2 ? "differs from the others in the gradient of variable 'w' in step 3"
                                    : " of the gradient of variable 'w' in step 3") &&
            Catch::EndsWith("it was not summed over the ranks before the step, or changed on a rank since then"));
  }
}
