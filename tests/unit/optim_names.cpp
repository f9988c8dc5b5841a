// Several optimizers in one strategy: each has a name, counts its own steps and keeps its own slots.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/meeting_point.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::test::optim_names_cases {
namespace {

/// One replica with variables that start as 10. Every gradient is 1.
struct NamesProgram {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  MirroredVariable c = make("c"), d = make("d");

  MirroredVariable make(const std::string& name) {
    return strategy.create_variable({.name = name}, [] { return Tensor::scalar(10.0); });
  }
  void step(Optimizer& optimizer, const Variable& variable) {
    strategy.run([&](ReplicaContext& context) {
      optimizer.apply_gradients(context, {{Tensor::scalar(1.0), variable}});
    });
  }
  std::int64_t counted(const std::string& name) { return strategy.store().counted(name + "@steps"); }
};

double value_of(const Variable& variable) {
  return variable.local().to_vector<double>().front();
}

Sgd plain(std::string name = {}) {
  return Sgd{{.learning_rate = 1, .name = std::move(name)}};
}

}  // namespace

TEST_CASE("Adam beside descent on one variable corrects its moments by its own steps") {
  NamesProgram program;
  Sgd descent{{.learning_rate = 1}};
  AdamW adam{{.learning_rate = 1}};
  for (const double after : {8.0, 6.0}) {
    program.step(descent, program.c);  // takes 1, the gradient
    program.step(adam, program.c);     // takes 1, because the corrected moments of equal gradients are 1 and 1
    CHECK(value_of(program.c) == Approx(after).margin(1e-6));
  }
}

TEST_CASE("two optimizers warm up at their own speed") {
  NamesProgram program;
  const AdamW::Options options{.learning_rate = LearningRate{{.peak = 1, .warmup_steps = 9}}};
  AdamW generator{options}, critic{options};
  for (int step = 0; step < 5; ++step) {
    program.step(generator, program.c);
    program.step(critic, program.d);
  }
  for (const auto& [optimizer, variable] : {std::pair{&generator, program.c}, std::pair{&critic, program.d}}) {
    CHECK(optimizer->learning_rate() == 0.5);
    CHECK(optimizer->steps(program.strategy) == 5);
    CHECK(value_of(variable) == Approx(8.5).margin(1e-6));  // less 0.1, 0.2, … 0.5
  }
}

TEST_CASE("optimizers without a name have the first free one, in the order of their first use") {
  NamesProgram program;
  Sgd late = plain(), named = plain("optimizer_1"), early = plain();
  auto middle = std::make_unique<Sgd>(Sgd::Options{.learning_rate = 1});
  program.step(early, program.c);
  program.strategy.run([&](ReplicaContext&) { middle->prepare(program.strategy, {program.c}); });
  CHECK(named.steps(program.strategy) == 0);
  CHECK_THROWS_AS(program.step(named, program.c), InvalidArgument);
  middle.reset();
  program.step(named, program.c);
  program.step(late, program.c);
  program.step(late, program.c);
  CHECK(program.counted("optimizer") == 1);
  CHECK(program.counted("optimizer_1") == 1);
  CHECK(program.counted("optimizer_2") == 2);
  CHECK(late.steps(program.strategy) == 2);
}

TEST_CASE("an optimizer that is made anew continues the count of the one whose name it gets") {
  NamesProgram program;
  const AdamW::Options options{.learning_rate = LearningRate{{.peak = 1, .warmup_steps = 9}}};
  AdamW whole{options};
  NamesProgram other;
  for (int epoch = 0; epoch < 3; ++epoch) {
    AdamW of_epoch{options};
    CHECK(of_epoch.steps(program.strategy) == epoch);
    program.step(of_epoch, program.c);
    CHECK(of_epoch.steps(program.strategy) == epoch + 1);
    other.step(whole, other.c);
  }
  CHECK(value_of(program.c) == value_of(other.c));
}

TEST_CASE("a name that two live optimizers ask for is refused, by both places, and so is a slot that they share") {
  using Catch::EndsWith, Catch::Matches, Catch::StartsWith;
  NamesProgram program;
  Sgd first = plain("critic"), second = plain("critic");
  AdamW another{{.learning_rate = 1}};
  std::optional<AdamW> adam{std::in_place, AdamW::Options{.learning_rate = 1}};
  program.step(first, program.c);
  program.step(*adam, program.c);
  program.strategy.run([&](ReplicaContext& context) {
    const std::vector<Optimizer::Gradient> gradients{{Tensor::scalar(1.0), program.c}};
    const auto meetings = program.group->meeting().meetings();
    CHECK_THROWS_WITH(
        second.apply_gradients(context, gradients),
        StartsWith("apply_gradients (optim_names.cpp:") &&
            Matches(".*: optimizer 'critic' needs another name: that of optimizer 'critic', first used at "
                    "optim_names.cpp:\\d+, is taken while it lives"));
    CHECK_THROWS_WITH(another.apply_gradients(context, gradients),
                      Matches("apply_gradients \\(optim_names.cpp:\\d+\\): optimizer 'optimizer_1' would change the "
                              "first moment of variable 'c', which belongs to optimizer 'optimizer', first used at "
                              "optim_names.cpp:\\d+; a variable has only one first moment, so let one optimizer update "
                              "it, or destroy 'optimizer' first"));
    CHECK_THROWS_AS(another.apply_gradients(context, gradients), InvalidArgument);
    CHECK_THROWS_WITH(another.prepare(program.strategy, {program.d, program.c}),
                      StartsWith("prepare (optim_names.cpp:"));
    CHECK(program.group->meeting().meetings() == meetings);
  });
  CHECK(program.strategy.store().counted("critic@steps") == 1);
  // Nothing is kept of what was refused, nor for those that are destroyed.
  Sgd heavy{{.learning_rate = 1, .momentum = 0.5}};
  program.step(heavy, program.c);
  program.step(another, program.d);
  CHECK(value_of(program.d) == Approx(9));
  adam.reset();
  CHECK_NOTHROW(program.step(another, program.c));
}

TEST_CASE("an optimizer and its strategy die in any order, and the names of a strategy are its own") {
  std::optional<Sgd> optimizer{std::in_place, Sgd::Options{.learning_rate = 1, .momentum = 0.5}};
  const Sgd* const before = &*optimizer;
  {
    NamesProgram first;
    first.step(*optimizer, first.c);
    NamesProgram second;
    Sgd other = plain();
    second.step(other, second.c);
    second.step(*optimizer, second.c);
    CHECK(optimizer->steps(first.strategy) == 1);
    CHECK(second.counted("optimizer_1") == 1);
    Strategy moved{std::move(second.strategy)};
    moved.run([&](ReplicaContext& context) { optimizer->apply_gradients(context, {{Tensor::scalar(1.0), second.c}}); });
    CHECK(optimizer->steps(moved) == 2);
  }
  NamesProgram third;
  third.step(*optimizer, third.c);
  CHECK(optimizer->steps(third.strategy) == 1);
  optimizer.emplace(Sgd::Options{.learning_rate = 1, .momentum = 0.5});
  CHECK(&*optimizer == before);  // at the same address, and another one
  third.step(*optimizer, third.c);
  CHECK(third.counted("optimizer") == 2);
}

TEST_CASE("a step outside of every run is told whose context it has, and where it belongs") {
  NamesProgram program;
  Sgd optimizer = plain();
  const std::vector<Optimizer::Gradient> gradients{{Tensor::scalar(1.0), program.c}};
  CHECK_THROWS_AS(optimizer.apply_gradients(*ReplicaContext::current(), gradients), InvalidArgument);
  CHECK_THROWS_WITH(
      optimizer.apply_gradients(*ReplicaContext::current(), gradients),
      Catch::StartsWith("apply_gradients (optim_names.cpp:") &&
          Catch::EndsWith("): the context is the default strategy's, as ReplicaContext::current() is outside of every "
                          "run, and variable 'c' belongs to " +
                          program.strategy.name() +
                          ": call it inside of strategy.run(), with the context that run passes"));
  program.step(optimizer, program.c);  // has its first name all the same
  CHECK(optimizer.steps(program.strategy) == 1);
}

}  // namespace lockstep::test::optim_names_cases
