// Optimizers on one rank.
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"
#include "core/tensor/inside.hpp"
#include "not_finite.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep::test::optim_cases {

using lockstep::test::infinity;
using lockstep::test::nan_value;

namespace {

Tensor of(std::initializer_list<float> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

std::vector<float> floats(const TensorView& view) {
  return view.to_vector<float>();
}

/// A strategy of one replica with two sealed variables.
struct Program {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return of({1, 2, 3}); });
  MirroredVariable b = strategy.create_variable({.name = "b"}, [] { return of({10}); });

  Program() { strategy.seal(); }

  template <class... Sums>
  void step(Optimizer& optimizer, const std::vector<Optimizer::Gradient>& gradients, Sums... sums) {
    strategy.run([&](ReplicaContext& context) { optimizer.apply_gradients(context, gradients, sums...); });
  }
};

/// Sees what an optimizer is asked for.
class Recorder final : public Optimizer {
 public:
  Recorder() : Optimizer{{.learning_rate = 1}, nullptr} {}
  std::vector<double> divisors;
  std::vector<std::int64_t> counts;
  std::function<void()> on_update = [] {};

 protected:
  std::vector<std::string_view> slots() const override { return {}; }
  void update(const Kernels&, const VariableStore::FlatRange& range, const UpdateStep& step) override {
    divisors.push_back(step.divisor);
    counts.push_back(range.values.count());
    on_update();
  }
};

}  // namespace

TEST_CASE("plain descent subtracts the learning rate times the gradient") {
  Program program;
  Sgd optimizer{{.learning_rate = 0.5}};
  program.step(optimizer, {{of({2, 4, -6}), program.w}, {of({20}), program.b}});
  CHECK(floats(program.w.local()) == std::vector<float>{0, 0, 6});
  CHECK(floats(program.b.local()) == std::vector<float>{0});
}

TEST_CASE("a portable optimizer takes cosines from lockstep itself, any other from the C library") {
  const LearningRate rate{{.peak = 1, .decay_steps = 1000}};
  std::int64_t last = 0;  // the first step at which that makes a difference, if there is one
  while (last < 200 && rate.at(last) == rate.portable_at(last)) ++last;
  const auto rate_of = [&](Optimizer&& optimizer) {
    Program program;
    for (std::int64_t step = 0; step <= last; ++step) program.step(optimizer, {{of({1, 1, 1}), program.w}});
    return optimizer.learning_rate();
  };
  CHECK(rate_of(Sgd{{.learning_rate = rate}}) == rate.at(last));
  CHECK(rate_of(AdamW{{.learning_rate = rate}}) == rate.at(last));
  CHECK(rate_of(Sgd{{.learning_rate = rate, .portable = true}}) == rate.portable_at(last));
  CHECK(rate_of(AdamW{{.learning_rate = rate, .portable = true}}) == rate.portable_at(last));
}

TEST_CASE("momentum gathers speed over three steps") {
  Program program;
  Sgd optimizer{{.learning_rate = 0.5, .momentum = 0.5}};
  const std::vector<Optimizer::Gradient> gradients{{of({8, 0, -8}), program.w}};
  // Velocities 8, 12, 14.
  program.step(optimizer, gradients);
  CHECK(floats(program.w.local()) == std::vector<float>{1 - 4, 2, 3 + 4});
  program.step(optimizer, gradients);
  CHECK(floats(program.w.local()) == std::vector<float>{1 - 10, 2, 3 + 10});
  program.step(optimizer, gradients);
  CHECK(floats(program.w.local()) == std::vector<float>{1 - 17, 2, 3 + 17});
  CHECK(floats(program.b.local()) == std::vector<float>{10});

  const auto ranges = program.strategy.store().ranges(std::vector<Variable>{program.w});
  REQUIRE(ranges.size() == 1);
  CHECK(floats(ranges[0].slot("momentum").slice(0, 3)) == std::vector<float>{14, 0, -14});
}

TEST_CASE("with samples, a step is the gradient divided by them") {
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  program.step(optimizer, {{of({4, 8, 12}), program.w}}, std::int64_t{4});
  CHECK(floats(program.w.local()) == std::vector<float>{0, 0, 0});

  Recorder recorder;
  program.step(recorder, {{of({1, 1, 1}), program.w}}, std::int64_t{7});
  program.step(recorder, {{of({1, 1, 1}), program.w}});
  CHECK(recorder.divisors == std::vector<double>{7, 1});
}

TEST_CASE("without any samples nothing is applied, and no momentum is lost") {
  Program program;
  Sgd optimizer{{.learning_rate = 1, .momentum = 0.5}};
  const std::vector<Optimizer::Gradient> gradients{{of({4, 0, 0}), program.w}};
  program.step(optimizer, gradients, std::int64_t{4});
  program.step(optimizer, gradients, std::int64_t{0});
  CHECK(floats(program.w.local()) == std::vector<float>{0, 2, 3});
  program.step(optimizer, gradients, std::int64_t{4});  // velocity 0.5 * 1 + 1
  CHECK(floats(program.w.local()) == std::vector<float>{-1.5, 2, 3});
}

TEST_CASE("the sums of one replica come back as they are") {
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  program.strategy.run([&](ReplicaContext& context) {
    const std::vector<Optimizer::Gradient> gradients{{of({2, 2, 2}), program.w}};
    const Optimizer::StepSums sums =
        optimizer.apply_gradients(context, gradients, Optimizer::StepSums{.samples = 2, .loss = 1.5, .correct = 1});
    CHECK(sums.samples == 2);
    CHECK(sums.loss == 1.5);
    CHECK(sums.correct == 1);
    CHECK(sums.weight == 2.0);
    CHECK(optimizer.apply_gradients(context, {}, Optimizer::StepSums{.loss = 3}).loss == 3);
  });
  CHECK(floats(program.w.local()) == std::vector<float>{0, 1, 2});
}

TEST_CASE("gradients are divided by what the samples weigh, and not applied where they weigh nothing") {
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  const std::vector<Optimizer::Gradient> gradients{{of({2, 2, 2}), program.w}};
  program.step(optimizer, gradients, Optimizer::StepSums{.samples = 7, .weight = 0.5});
  CHECK(floats(program.w.local()) == std::vector<float>{-3, -2, -1});
  program.step(optimizer, gradients, Optimizer::StepSums{.samples = 7, .weight = 0.0});
  CHECK(floats(program.w.local()) == std::vector<float>{-3, -2, -1});
  CHECK(optimizer.steps(program.strategy) == 1);
  for (const double weight : {-0.5, std::numeric_limits<double>::infinity(), std::nan("")})
    program.strategy.run([&](ReplicaContext& context) {
      CHECK_THROWS_WITH(
          optimizer.apply_gradients(context, gradients, Optimizer::StepSums{.samples = 7, .weight = weight}),
          Catch::StartsWith("apply_gradients (optim.cpp:") && Catch::Contains("): samples that weigh "));
    });
}

TEST_CASE("variables without a gradient stay as they are, between those that have one too") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  std::vector<Variable> all;
  for (const char* name : {"a", "b", "c"})
    all.push_back(strategy.create_variable({.name = name}, [] { return of({1, 1}); }));
  strategy.seal();
  // Gradients left over from another step must not count.
  for (const Variable& variable : all) copy(of({9, 9}).view(), strategy.store().gradient(variable));
  Sgd optimizer{{.learning_rate = 1, .momentum = 0.5}};
  strategy.run([&](ReplicaContext& context) {
    const std::vector<Optimizer::Gradient> outer{{of({1, 2}), all[0]}, {of({3, 4}), all[2]}};
    optimizer.apply_gradients(context, outer);
    optimizer.apply_gradients(context, {});
  });
  CHECK(floats(all[0].local()) == std::vector<float>{0, -1});
  CHECK(floats(all[1].local()) == std::vector<float>{1, 1});
  CHECK(floats(all[2].local()) == std::vector<float>{-2, -3});
}

TEST_CASE("neighbours in the store are one pass, in whichever order they are given") {
  Program program;
  Recorder recorder;
  program.step(recorder, {{of({1, 1, 1}), program.w}, {of({1}), program.b}});
  program.step(recorder, {{of({1}), program.b}, {of({1, 1, 1}), program.w}});
  CHECK(recorder.counts == std::vector<std::int64_t>{128, 128});  // two views of 256 bytes each
}

TEST_CASE("gradients that lie in the store and gradients elsewhere make the same step") {
  Program in_place;
  Program elsewhere;
  Sgd one{{.learning_rate = 0.1, .momentum = 0.9}};
  Sgd other{{.learning_rate = 0.1, .momentum = 0.9}};
  const std::vector<Variable> variables{in_place.w, in_place.b};
  const auto gradients = Optimizer::gradients_in_store(in_place.strategy.store(), variables);
  REQUIRE(gradients.size() == 2);
  CHECK(gradients[0].value.view().data() == in_place.strategy.store().gradient(in_place.w).data());
  for (const float step : {1.f, 2.f, 3.f}) {
    const std::vector<Optimizer::Gradient> separate{{of({step, 0.3f, -step}), elsewhere.w},
                                                    {of({0.7f * step}), elsewhere.b}};
    for (std::size_t i = 0; i < 2; ++i) copy(separate[i].value.view(), gradients[i].value.view());
    in_place.step(one, gradients, std::int64_t{3});
    elsewhere.step(other, separate, std::int64_t{3});
    CHECK(floats(separate[0].value.view()) == std::vector<float>{step, 0.3f, -step});
  }
  CHECK(floats(in_place.w.local()) == floats(elsewhere.w.local()));
  CHECK(floats(in_place.b.local()) == floats(elsewhere.b.local()));
}

TEST_CASE("a tensor of the store's gradients outlives the strategy") {
  std::vector<Optimizer::Gradient> kept;
  {
    Program program;
    kept = Optimizer::gradients_in_store(program.strategy.store(), std::vector<Variable>{program.w});
  }
  Tensor value = kept[0].value;
  kept.clear();
  value.view().elements<float>()[2] = 5;
  CHECK(value.to_vector<float>() == std::vector<float>{0, 0, 5});
}

TEST_CASE("a gradient says what it is a gradient for, whether it is dense or slices, which are no tensor") {
  const Optimizer::Gradient::Value dense = of({1, 2});
  CHECK(dense.shape() == Shape{2});
  CHECK(dense.slices() == nullptr);
  const Optimizer::Gradient::Value slices =
      IndexedSlices{Tensor::zeros(DType::f64, {1, 2}), Tensor::zeros(DType::i64, {1}), {9, 2}};
  CHECK(slices.shape() == Shape{9, 2});
  CHECK(slices.dtype() == DType::f64);
  CHECK(slices.slices()->indices.count() == 1);
  CHECK_THROWS_WITH(slices.view(), "a gradient of slices f64[1, 2] of [9, 2] is not dense");
}

TEST_CASE("f64 variables take f64 gradients, beside f32 ones") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const Variable narrow = strategy.create_variable({.name = "narrow"}, [] { return of({1}); });
  const Variable wide = strategy.create_variable({.name = "wide"}, [] { return Tensor::scalar(1.0); });
  Sgd optimizer{{.learning_rate = 0.1}};
  strategy.run([&](ReplicaContext& context) {
    const std::vector<Optimizer::Gradient> gradients{{of({1}), narrow}, {Tensor::scalar(1.0), wide}};
    const Optimizer::StepSums sums =
        optimizer.apply_gradients(context, gradients, Optimizer::StepSums{.samples = 1, .loss = 0.25});
    CHECK(sums.loss == 0.25);
  });
  CHECK(narrow.local().to_vector<float>()[0] == 1 - 0.1f);
  CHECK(wide.local().to_vector<double>()[0] == 1 - 0.1);
}

TEST_CASE("what cannot be applied is refused by the variable's name, and changes nothing", "[K-17]") {
  Program program;
  Program stranger;
  Strategy& strategy = program.strategy;
  const Variable fixed = strategy.create_variable({.name = "fixed", .trainable = false}, [] { return of({1}); });
  const Variable counter = strategy.create_variable({.name = "counter"}, [] { return Tensor::scalar(1); });
  strategy.seal();
  const Variable& w = program.w;
  const Variable& b = program.b;
  Sgd optimizer{{.learning_rate = 1}};
  using Catch::Contains;
  strategy.run([&](ReplicaContext& context) {
    const auto refused = [&](std::vector<Optimizer::Gradient> gradients, const auto& message) {
      CHECK_THROWS_WITH(optimizer.apply_gradients(context, gradients),
                        Catch::StartsWith("apply_gradients (optim.cpp:") && message);
      CHECK_THROWS_AS(optimizer.apply_gradients(context, gradients), InvalidArgument);
    };
    const Tensor three = of({1, 1, 1});
    refused({{of({1, 1}), w}}, Contains("'w' is f32[3]") && Contains("gradient is f32[2]"));
    refused({{Tensor::zeros(DType::f64, {3}), w}}, Contains("'w'") && Contains("f64[3]"));
    refused({{Tensor::zeros(DType::f32, {3, 1}), w}}, Contains("'w'") && Contains("f32[3, 1]"));
    refused({{of({1}), fixed}}, Contains("'fixed' is not trainable"));
    refused({{Tensor::scalar(1), counter}}, Contains("'counter' is i32[]; expected f32 or f64"));
    refused({{three, w}, {of({1}), b}, {three, w}}, Contains("'w' is given twice"));
    refused({{three, stranger.w}}, Contains("'w' was not created by strategy 0"));
    refused({{three, w}, {tensor_in(nullptr, strategy.store().gradient(w).slice(0, 1)), b}},
            Contains("'b' lies in the store"));
    CHECK_THROWS_WITH(optimizer.apply_gradients(context, std::vector<Optimizer::Gradient>{{three, w}}, -1),
                      Catch::StartsWith("apply_gradients (optim.cpp:") && Contains("): -1 samples"));
    CHECK_THROWS_AS(optimizer.apply_gradients(context, std::vector<Optimizer::Gradient>{{three, w}},
                                              Optimizer::StepSums{.samples = -1}),
                    InvalidArgument);

    const Variable late = strategy.create_variable({.name = "late"}, [] { return of({1}); });
    CHECK_THROWS_WITH(optimizer.apply_gradients(context, std::vector<Optimizer::Gradient>{{of({1}), late}}),
                      Catch::StartsWith("optim.cpp:") && Contains(": variable 'late' has no memory yet"));
    context.merge_call([&](Strategy&) {
      CHECK_THROWS_WITH(optimizer.apply_gradients(context, std::vector<Optimizer::Gradient>{{three, w}}),
                        Catch::StartsWith("apply_gradients (optim.cpp:") && Contains("): Need to be inside"));
    });
  });
  CHECK(floats(w.local()) == std::vector<float>{1, 2, 3});
  CHECK(floats(b.local()) == std::vector<float>{10});
  CHECK(floats(strategy.store().gradient(w)) == std::vector<float>{0, 0, 0});
}

TEST_CASE("an optimizer notices that it is given other variables than the last time") {
  Program first;
  Program second;
  Sgd optimizer{{.learning_rate = 1}};
  first.step(optimizer, {{of({1, 1, 1}), first.w}});
  first.step(optimizer, {{of({1}), first.b}});
  second.step(optimizer, {{of({2, 2, 2}), second.w}});
  first.step(optimizer, {{of({1, 1, 1}), first.w}});
  CHECK(floats(first.w.local()) == std::vector<float>{-1, 0, 1});
  CHECK(floats(first.b.local()) == std::vector<float>{9});
  CHECK(floats(second.w.local()) == std::vector<float>{-1, 0, 1});
  CHECK(floats(second.b.local()) == std::vector<float>{10});
  CHECK_THROWS_AS(second.step(optimizer, {{of({1, 1, 1}), first.w}}), InvalidArgument);
}

TEST_CASE("learning rates and momenta outside of their range are refused") {
  for (const double rate : {0.0, -0.1, nan_value, infinity, -infinity})
    CHECK_THROWS_WITH(Sgd({.learning_rate = rate}), Catch::Contains("learning rate"));
  for (const double momentum : {-0.1, 1.0, 1.5, nan_value, infinity})
    CHECK_THROWS_WITH(Sgd({.learning_rate = 0.1, .momentum = momentum}), Catch::Contains("momentum"));
  CHECK_THROWS_AS(Sgd({.learning_rate = nan_value}), InvalidArgument);
  CHECK_NOTHROW(Sgd({.learning_rate = 1e-9, .momentum = 0.999}));
}

TEST_CASE("a training step is two agreements, with its sums and whatever it trains") {
  Program program;
  Sgd optimizer{{.learning_rate = 0.5}};
  const std::vector<Optimizer::Gradient> gradients{{of({2, 4, -6}), program.w}, {of({20}), program.b}};
  program.step(optimizer, gradients, Optimizer::StepSums{.samples = 2, .loss = 1, .correct = 1});  // seals nothing more
  const std::uint64_t before = program.group->meeting().meetings();
  program.step(optimizer, gradients, Optimizer::StepSums{.samples = 2, .loss = 1, .correct = 1});
  CHECK(program.group->meeting().meetings() == before + 2);
}

TEST_CASE("a rank that updates what it alone holds is computing, and waits only to send it") {
  PhaseTable table{SharedMemory::create(PhaseTable::bytes_for(1)), 1, 0};
  std::vector<Phase> seen;
  const auto see = [&] { seen.push_back(table.read(0).phase); };
  const auto group = make_local_group();
  group->meeting().set_phases(&table);
  Strategy strategy = strategy_on(*group, {.around = [&](const std::function<void()>& collective) {
    see();
    collective();
  }});
  const auto w = strategy.create_variable({.name = "w"}, [] { return of({1}); });
  inside(w).state().holder = 0;
  strategy.seal();
  Recorder optimizer;
  optimizer.on_update = [&] {
    seen.clear();  // what came before it
    see();
  };
  const std::vector<Optimizer::Gradient> gradients{{of({1}), w}};
  const Optimizer::Computation compute{[&](Optimizer::AgreedStep& step) {
    step.ready(w);
    return Optimizer::StepSums{.samples = 1};
  }};
  strategy.run([&](ReplicaContext& context) {
    optimizer.apply_gradients(context, {.gradients = gradients, .computation = compute});
  });
  CHECK(seen == std::vector{Phase::computing, Phase::meeting});
}

TEST_CASE("gradients that are ready before their step travel as the packing says, and small ones together") {
  // Of a step with variables of these sizes, which are not neighbours in memory.
  const auto collectives = [](std::initializer_list<std::int64_t> sizes, const ReductionOptions::Packing& packing) {
    int count = 0;
    const auto group = make_local_group();
    Strategy strategy =
        strategy_on(*group, {.packing = packing, .around = [&](const std::function<void()>& collective) {
                               ++count;
                               collective();
                             }});
    std::vector<MirroredVariable> others;
    std::vector<Optimizer::Gradient> gradients;
    for (const std::int64_t size : sizes) {
      const auto zeros = [&] { return Tensor::zeros(DType::f32, {size}); };
      gradients.push_back({zeros(), strategy.create_variable({}, zeros)});
      others.push_back(strategy.create_variable({}, zeros));
    }
    strategy.seal();
    Recorder optimizer;
    count = 0;
    strategy.run([&](ReplicaContext& context) { optimizer.apply_gradients(context, gradients); });
    return count;
  };
  CHECK(collectives({20'000, 30'000}, {}) == 2);
  CHECK(collectives({20'000, 30'000}, ReductionOptions::into_packs(3)) == 6);
  CHECK(collectives({2'000, 3'000}, {}) == 1);
}

}  // namespace lockstep::test::optim_cases
