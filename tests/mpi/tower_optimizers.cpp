// Optimizers in replicated model functions: one step for all towers.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/tf/estimator/replicate_model_fn.hpp>

#include "core/control/meeting_point.hpp"
#include "mpi/shared_folder.hpp"
#include "mpi/tower_program.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr auto same_calls = "Each replica's model_fn was supposed to make the same optimizer calls.";
constexpr auto wrap_them =
    "Please wrap optimizers with TowerOptimizer in order to use replicate_model_fn with multiple replicas.";

}  // namespace

TEST_CASE("a plain optimizer in a model function is refused on several replicas, until a TowerOptimizer is used",
          "[J-6][J-18][J-36]") {
  enum class Use { wrapped, plain, accessor };
  Use use = Use::wrapped;
  TowerProgram program{[&](Tower& tower, const Tensor&, const auto&) {
    const auto c = ten(tower);
    const auto plain = sgd(1);
    TowerOptimizer wrapped{plain};
    if (use == Use::wrapped) {
      wrapped.apply_gradients(tower, {{vector_of({1}), c}});
    } else {
      if (use == Use::accessor) CHECK(wrapped.optimizer().steps(tower.context().strategy()) >= 0);
      plain->apply_gradients(tower.context(), {{vector_of({1}), c}});
    }
    return EstimatorSpec{};
  }};
  const auto call = [&](Use how) {
    use = how;
    program.call();
  };
  const auto n = static_cast<float>(ranks());
  if (ranks() > 1) {
    expect_error<InvalidArgument>(wrap_them, [&](bool wrong) { call(wrong ? Use::plain : Use::wrapped); });
    CHECK(program.value() == 10);
  } else {
    call(Use::plain);
    CHECK(program.value() == 9);
  }
  const float before = program.value();
  call(Use::accessor);
  CHECK(program.value() == before - n);
}

TEST_CASE("towers make the same optimizer calls, and calls at the same place belong together", "[J-19][J-34]") {
  int calls = 2;
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower, "c"), d = ten(tower, "d");
    TowerOptimizer first{sgd(1, "first")}, second{sgd(2, "second")};
    for (int call = 0; call < calls; ++call)
      (call % 2 ? second : first).apply_gradients(tower, {{features, call % 2 ? d : c}});
    return EstimatorSpec{};
  }};
  program.call();
  CHECK(program.value(0) == 10 - static_cast<float>(triangle()));
  CHECK(program.value(1) == 10 - 2 * static_cast<float>(triangle()));
  if (ranks() == 1) return;
  for (const auto& [usual, odd] : {std::pair{1, 3}, std::pair{3, 1}, std::pair{0, 2}, std::pair{1, 0}}) {
    calls = odd_one() ? odd : usual;
    const std::string told = mismatch_of([&] { program.call(); });
    CHECK_THAT(told, Catch::StartsWith(same_calls));
    // The two ranks that it names, either of which may have stopped first.
    const std::string first = odd < usual ? " returned from its own; replica 0" : " called an optimizer; replica 0";
    CHECK_THAT(told, Catch::Contains(first));
    expect_in_step();
  }
  calls = 2;
  program.call();
  program.strategy.attest();

  TowerProgram other{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower, "c"), d = ten(tower, "d");
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {{features, odd_one() ? d : c}});
    return EstimatorSpec{};
  }};
  CHECK_THAT(mismatch_of([&] { other.call(); }), Catch::StartsWith(same_calls) && Catch::Contains("gradients of 'd'"));
  CHECK(other.value() == 10);

  TowerProgram counting_steps{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower);
    const auto step = tower.variable({.name = "step", .trainable = false}, [] { return Tensor::scalar(INT64_C(0)); });
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {{features, c}}, odd_one() ? std::optional{step} : std::nullopt);
    return EstimatorSpec{};
  }};
  CHECK_THAT(mismatch_of([&] { counting_steps.call(); }), Catch::Contains(" and the global step 'step';"));
  counting_steps.strategy.attest();
}

TEST_CASE("descent and Adam on one loss each make a first step, and count their own", "[J-34]") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower);
    TowerOptimizer descent{sgd(1)}, adam{std::make_shared<AdamW>(AdamW::Options{.learning_rate = 1})};
    descent.apply_gradients(tower, {{features, c}});
    adam.apply_gradients(tower, {{features, c}});
    return EstimatorSpec{.loss = features};
  }};
  for (const int calls : {1, 2}) {
    program.call();
    const int taken = calls * (triangle() + 1);  // Adam takes 1 whatever the gradient, if it is the same in all steps
    CHECK(program.value() == Approx(10 - taken).margin(1e-5));
    for (const char* const counter : {"optimizer@steps", "optimizer_1@steps"})
      CHECK(program.strategy.store().counted(counter) == calls);
  }
}

TEST_CASE("what no optimizer can update is refused, also if nobody has a gradient of it") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto w = ten(tower);
    const auto fixed = tower.variable({.name = "fixed", .trainable = false}, [] { return vector_of({1}); });
    const std::vector<Tower::Gradient> twice{{{}, w}, {{}, w}}, untrainable{{{}, fixed}};
    TowerOptimizer{sgd(1)}.apply_gradients(tower, features.shape().front() == 1 ? twice : untrainable);
    return EstimatorSpec{};
  }};
  CHECK_THAT(message_of<InvalidArgument>([&] { program.call(); }), Catch::Contains("variable 'c' is given twice"));
  CHECK_THAT(message_of<InvalidArgument>([&] { program.call(counting(2)); }),
             Catch::Contains("variable 'fixed' is not trainable"));
}

TEST_CASE("a variable that some towers have no gradient of gets the others', and what nobody has is left alone",
          "[J-27]") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto all = ten(tower, "all"), some = ten(tower, "some"), none = ten(tower, "none");
    const auto step = tower.variable({.name = "step", .trainable = false}, [] { return Tensor::scalar(INT64_C(0)); });
    TowerOptimizer optimizer{std::make_shared<Sgd>(Sgd::Options{.learning_rate = 1, .momentum = 0.5})};
    Tower::Gradient of_some{features, some};
    if (!odd_one()) of_some.value.reset();
    optimizer.apply_gradients(tower, {{features, all}, of_some, {{}, none}}, step);
    optimizer.apply_gradients(tower, {{{}, all}, {{}, some}, {{}, none}}, step);  // no step
    return EstimatorSpec{};
  }};
  program.call();
  CHECK(program.value(0) == 10 - static_cast<float>(triangle()));
  CHECK(program.value(1) == 10 - static_cast<float>(ranks()));
  CHECK(program.value(2) == 10);
  CHECK(program.model.variables().at(3).local().to_vector<std::int64_t>() == std::vector<std::int64_t>{1});
  program.call();
  CHECK(program.value(1) == 10 - 2.5F * static_cast<float>(ranks()));  // with momentum 0.5
  CHECK(program.value(2) == 10);
  program.strategy.attest();
}

TEST_CASE("slices of all towers are put together, and a variable has one kind of gradient", "[J-28][J-29]") {
  const auto row = [](std::int64_t index, float value) {
    return IndexedSlices{Tensor::from({value, value}, {1, 2}), Tensor::from({index}, {1}), {3, 2}};
  };
  enum class Odd { none, dense, absent };
  Odd odd = Odd::none;
  const auto slices = [&](Tower& tower, const Tensor& features, const std::optional<Tensor>&) {
    const auto w = tower.variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {3, 2}); });
    const float mine = value_of(features);
    Tower::Gradient gradient{row(rank() % 3, mine), w};
    if (odd_one() && odd == Odd::dense) gradient.value = Tensor::zeros(DType::f32, {3, 2});
    if (odd_one() && odd == Odd::absent) gradient.value.reset();
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {gradient});
    return EstimatorSpec{.loss = features};
  };
  TowerProgram program{slices};
  const auto expect = [&](int of_ranks) {
    std::vector<float> expected(6);
    for (int each = 0; each < of_ranks; ++each)
      for (int i = 0; i < 2; ++i) expected[static_cast<std::size_t>(each % 3 * 2 + i)] -= static_cast<float>(each + 1);
    return expected;
  };
  program.call();
  const auto w = program.model.variables().at(0);
  CHECK(w.local().to_vector<float>() == expect(ranks()));
  if (ranks() == 1) return;
  odd = Odd::dense;
  CHECK(mismatch_of([&] { program.call(); }) == "the gradients of variable 'w' are dense on 1 of " +
                                                    std::to_string(ranks()) + " replicas and slices on " +
                                                    std::to_string(ranks() - 1));
  expect_in_step();
  CHECK(w.local().to_vector<float>() == expect(ranks()));
  odd = Odd::absent;
  TowerProgram others{slices};
  others.call();
  CHECK(others.model.variables().at(0).local().to_vector<float>() == expect(ranks() - 1));
  TowerProgram divided{slices, {.reduction = ReplicateOptions::Reduction::mean}};
  odd = Odd::none;
  divided.call();
  CHECK(divided.model.variables().at(0).local().to_vector<float>()[1] ==
        expect(ranks())[1] / static_cast<float>(ranks()));
}

TEST_CASE("the global step counts once in each step, on every rank", "[J-33]") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower);
    const auto step = tower.variable({.name = "step", .trainable = false}, [] { return Tensor::scalar(INT64_C(5)); });
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {{features, c}}, step);
    return EstimatorSpec{};
  }};
  program.call();
  program.call(counting(), EstimatorSpec::Mode::evaluate);
  program.call();
  CHECK(program.model.variables().at(1).local().to_vector<std::int64_t>() == std::vector<std::int64_t>{7});
  program.strategy.attest();

  TowerProgram refused{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower);
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {{features, c}}, c);
    return EstimatorSpec{};
  }};
  CHECK_THAT(message_of<InvalidArgument>([&] { refused.call(); }),
             Catch::Contains("the global step 'c' is f32[1]; expected a mirrored variable of strategy"));
}

TEST_CASE("an optimizer is made at the first use, and only then", "[J-35][J-36]") {
  int made = 0;
  const TowerOptimizer::Factory make = [&] {
    ++made;
    return sgd(1);
  };
  TowerOptimizer optimizer{make};
  CHECK(made == 0);
  CHECK(optimizer.optimizer().learning_rate() == 0);
  CHECK(made == 1);
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    optimizer.apply_gradients(tower, {{features, ten(tower)}});
    return EstimatorSpec{};
  }};
  program.call();
  CHECK(made == 1);
  CHECK(optimizer.optimizer().steps(program.strategy) == 1);
  CHECK(message_of<InvalidArgument>([] { TowerOptimizer{std::shared_ptr<Optimizer>{}}; }) ==
        "a TowerOptimizer without an optimizer");
  TowerOptimizer none{TowerOptimizer::Factory{[] { return nullptr; }}};
  CHECK(message_of<InvalidArgument>([&] { none.optimizer(); }) ==
        "the function that makes a TowerOptimizer's optimizer returned none");
}

TEST_CASE("outside of a model function, a TowerOptimizer is the plain one", "[J-37]") {
  Strategy strategy = runtime().make_strategy();
  const auto c = strategy.create_variable({.name = "c"}, [] { return vector_of({10}); });
  const auto d = strategy.create_variable({.name = "d"}, [] { return vector_of({10}); });
  const auto step =
      strategy.create_variable({.name = "step", .trainable = false}, [] { return Tensor::scalar(INT64_C(0)); });
  TowerOptimizer optimizer{sgd(1)};
  strategy.run([&](ReplicaContext& context) {
    optimizer.apply_gradients(context, {{vector_of({static_cast<float>(rank() + 1)}), c}, {{}, d}}, step);
  });
  CHECK(value_of(c) == 10 - static_cast<float>(triangle()));
  CHECK(value_of(d) == 10);
  CHECK(step.local().to_vector<std::int64_t>() == std::vector<std::int64_t>{1});

  // All count the same step, or none.
  if (ranks() > 1) {
    CHECK_THROWS_AS(strategy.run([&](ReplicaContext& context) {
      const auto counted = odd_one() ? std::nullopt : std::optional<Variable>{step};
      optimizer.apply_gradients(context, {{vector_of({1}), c}}, counted);
    }),
                    MismatchError);
    CHECK(step.local().to_vector<std::int64_t>() == std::vector<std::int64_t>{1});
  }

  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    optimizer.apply_gradients(tower.context(), {{features, ten(tower)}});
    return EstimatorSpec{};
  }};
  CHECK_THAT(message_of<InvalidArgument>([&] { program.call(); }),
             Catch::EndsWith("a TowerOptimizer in a model function: expected the tower in place of its context"));
}

TEST_CASE("a call costs three agreements, and two more for each step and for predictions") {
  TowerOptimizer optimizer{sgd(1)};
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower);
    if (tower.mode() == EstimatorSpec::Mode::train)
      optimizer.apply_gradients(tower, {{vector_of({value_of(features)}), c}});
    EstimatorSpec spec;
    if (tower.mode() == EstimatorSpec::Mode::predict) spec.predictions["x"] = features;
    return spec;
  }};
  program.call();  // makes the variable
  const auto agreements_of = [&](EstimatorSpec::Mode mode) {
    const auto before = inside(program.strategy).group().meeting().meetings();
    program.call(counting(), mode);
    return inside(program.strategy).group().meeting().meetings() - before;
  };
  CHECK(agreements_of(EstimatorSpec::Mode::evaluate) == 3);
  CHECK(agreements_of(EstimatorSpec::Mode::train) == 5);
  CHECK(agreements_of(EstimatorSpec::Mode::predict) == (ranks() > 1 ? 5 : 3));
}

TEST_CASE("small gradients travel together, whenever their variables were made, and a large one by itself") {
  static constexpr std::int64_t many = 64 << 10;
  for (const ReplicateOptions::Reduction reduction :
       {ReplicateOptions::Reduction::sum, ReplicateOptions::Reduction::mean}) {
    int sums = 0, of_step = 0;
    Strategy strategy = runtime().make_strategy({.around = [&](const std::function<void()>& collective) {
      ++sums;
      collective();
    }});
    TowerOptimizer optimizer{sgd(1)};
    const auto fn = [&](Tower& tower, const Tensor& features, const auto&) {
      std::vector<Tower::Gradient> gradients;
      for (const char* const name : {"a", "b", "c"}) gradients.push_back({features, ten(tower, name)});
      const auto large = tower.variable({.name = "large"}, [] { return Tensor::zeros(DType::f32, {many}); });
      gradients.push_back({Tensor::from(std::vector(many, value_of(features)), {many}), large});
      const int before = sums;
      optimizer.apply_gradients(tower, gradients);
      of_step = sums - before;
      return EstimatorSpec{};
    };
    auto model = replicated<Tensor, Tensor>(strategy, fn, {.reduction = reduction});
    model(counting(), std::nullopt, EstimatorSpec::Mode::train);
    CHECK(of_step == 3);  // which towers have gradients; the small ones; the large one
    const float divisor = reduction == ReplicateOptions::Reduction::mean ? static_cast<float>(ranks()) : 1;
    for (const MirroredVariable& each : model.variables())
      CHECK(value_of(each) == (each.name() == "large" ? 0 : 10) - static_cast<float>(triangle()) / divisor);
  }
}

TEST_CASE("what towers collect is gone after the call, and in no checkpoint", "[J-20][J-39]") {
  const SharedFolder folder;
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    TowerOptimizer optimizer{std::make_shared<Sgd>(Sgd::Options{.learning_rate = 1, .momentum = 0.5})};
    optimizer.apply_gradients(tower, {{features, ten(tower)}});
    if (value_of(tower.accumulator("n", {}, DType::f32)) != 0) throw std::logic_error{"left over"};
    return EstimatorSpec{};
  }};
  program.call();
  // A call that ends in the middle of its optimizer calls leaves nothing behind for the next one.
  TowerProgram broken{[&](Tower& tower, const Tensor& features, const auto&) {
    TowerOptimizer optimizer{sgd(1)};
    optimizer.apply_gradients(tower, {{features, ten(tower)}});
    if (features.shape().front() == 2) throw std::out_of_range{"in the middle"};
    optimizer.apply_gradients(tower, {{features, ten(tower)}});
    return EstimatorSpec{};
  }};
  CHECK_THROWS_AS(broken.call(counting(2)), InvalidArgument);  // two rows are no gradient of one element
  CHECK_NOTHROW(broken.call());
  save_checkpoint(program.strategy, folder / "checkpoint");

  // Neither sums of metrics nor variables that no optimizer updates are in the way of a program that goes on.
  TowerProgram restored{[&](Tower& tower, const Tensor&, const auto&) {
    const auto c = ten(tower);
    if (tower.mode() == EstimatorSpec::Mode::evaluate) tower.accumulator("other").assign_add(Tensor::scalar(3.0));
    return EstimatorSpec{};
  }};
  restored.call(counting(), EstimatorSpec::Mode::evaluate);
  Sgd{{.learning_rate = 1, .momentum = 0.5}}.prepare(restored.strategy, restored.model.trainable_variables());
  restore_checkpoint(restored.strategy, folder / "checkpoint");
  CHECK(restored.value() == program.value());
}
