// Several steps of every optimizer, with everything on: against a calculation in double that shares nothing with it.
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/element_count.hpp"
#include "core/control/meeting_point.hpp"
#include "not_finite.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep::test::optim_steps_cases {

using lockstep::test::infinity;
using lockstep::test::nan_value;

namespace {

std::vector<double> in_double(const TensorView& view) {
  if (view.dtype() == DType::f64) return view.to_vector<double>();
  const auto values = view.to_vector<float>();
  return {values.begin(), values.end()};
}

Tensor tensor(DType dtype, const Shape& shape, const std::vector<double>& values) {
  if (dtype == DType::f64) return Tensor::from(values, shape);
  return Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
}

/// Numbers in [-1, 1), the same for the same seed.
Tensor noise(DType dtype, const Shape& shape, std::uint64_t seed) {
  const RandomStream stream{seed, RandomStream::Purpose::initial_value, 0};
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 * stream.uniform(i) - 1;
  return tensor(dtype, shape, values);
}

/// A strategy of one replica, whose variables get gradients one step after the other.
struct StepProgram {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  std::vector<Variable> variables;

  const Variable& add(const std::string& name, const Tensor& value) {
    return variables.emplace_back(strategy.create_variable({.name = name}, [&] { return value; }));
  }

  /// A weight and a bias for each of two layers, in both types, and a filter.
  void add_layers() {
    add("w1", noise(DType::f32, {7, 5}, 1));
    add("b1", noise(DType::f32, {5}, 2));
    add("w2", noise(DType::f64, {5, 3}, 3));
    add("b2", noise(DType::f64, {3}, 4));
    add("filter", noise(DType::f32, {2, 3, 2, 2}, 5));
  }

  template <class... Sums>
  void step(Optimizer& optimizer, const std::vector<Tensor>& values, Sums... sums) {
    std::vector<Optimizer::Gradient> gradients;
    for (std::size_t i = 0; i < values.size(); ++i) gradients.push_back({values[i], variables[i]});
    strategy.run([&](ReplicaContext& context) { optimizer.apply_gradients(context, gradients, sums...); });
  }

  std::vector<std::vector<double>> values() const {
    std::vector<std::vector<double>> all;
    for (const Variable& variable : variables) all.push_back(in_double(variable.local()));
    return all;
  }
};

/// The same in double, variable by variable and element by element.
class InDouble {
 public:
  enum class Rule { sgd, momentum, adamw };

  InDouble(Rule rule, const StepProgram& program) : rule_{rule}, values_{program.values()} {
    for (const Variable& variable : program.variables) is_decayed_.push_back(variable.shape().size() >= 2);
    first_ = second_ = values_;
    for (auto* moments : {&first_, &second_})
      for (auto& each : *moments) each.assign(each.size(), 0);
  }

  void step(const std::vector<Tensor>& sums, double samples, double learning_rate, double decay, double largest_norm) {
    ++steps_;
    double squares = 0;
    for (const Tensor& sum : sums)
      for (const double each : in_double(sum.view())) squares += each * each / (samples * samples);
    norms.push_back(std::sqrt(squares));
    const double factor = std::min(1., largest_norm / norms.back());
    for (std::size_t i = 0; i < sums.size(); ++i)
      for (std::size_t j = 0; j < values_[i].size(); ++j)
        move(i, j, in_double(sums[i].view())[j] / samples * factor, learning_rate, is_decayed_[i] ? decay : 0);
  }

  const std::vector<std::vector<double>>& values() const { return values_; }
  std::vector<double> norms;

 private:
  void move(std::size_t i, std::size_t j, double gradient, double rate, double decay) {
    double& value = values_[i][j];
    double& first = first_[i][j];
    double& second = second_[i][j];
    switch (rule_) {
      case Rule::sgd: value -= rate * (gradient + decay * value); return;
      case Rule::momentum:
        first = 0.75 * first + gradient + decay * value;
        value -= rate * first;
        return;
      case Rule::adamw:
        first += (1 - 0.8) * (gradient - first);
        second += (1 - 0.95) * (gradient * gradient - second);
        value *= 1 - rate * decay;
        value -=
            rate * (first / (1 - std::pow(0.8, steps_))) / (std::sqrt(second / (1 - std::pow(0.95, steps_))) + 0.01);
        return;
    }
  }

  Rule rule_;
  std::vector<std::vector<double>> values_, first_, second_;
  std::vector<bool> is_decayed_;
  int steps_ = 0;
};

/// Sees in which passes an optimizer updates.
class DecayRecorder final : public Optimizer {
 public:
  explicit DecayRecorder(double weight_decay)
      : Optimizer{{.learning_rate = 1, .weight_decay = weight_decay}, nullptr} {}
  std::vector<double> decays;
  std::vector<std::int64_t> counts;

 protected:
  std::vector<std::string_view> slots() const override { return {}; }
  void update(const Kernels&, const VariableStore::FlatRange& range, const UpdateStep& step) override {
    decays.push_back(step.weight_decay);
    counts.push_back(range.values.count());
  }
};

std::vector<std::string> state_of(Strategy& strategy) {
  std::vector<std::string> names;
  for (const detail::OptimizerState& state : inside(strategy.store()).optimizer_state()) names.push_back(state.name);
  return names;
}

}  // namespace

TEST_CASE("six steps of each optimizer, with decay, clipping and a schedule, are those of a calculation in double") {
  using Rule = InDouble::Rule;
  const Rule rule = GENERATE(Rule::sgd, Rule::momentum, Rule::adamw);
  constexpr double decay = 0.1, largest_norm = 0.95;
  const LearningRate rate{{.peak = 0.1, .warmup_steps = 2, .decay_steps = 6}};
  const double rates[] = {0.1 / 3, 0.2 / 3, 0.1, 0.05 * (1 + std::sqrt(0.5)), 0.05, 0.05 * (1 - std::sqrt(0.5))};
  std::unique_ptr<Optimizer> optimizer;
  if (rule == Rule::adamw)
    optimizer = std::make_unique<AdamW>(AdamW::Options{.learning_rate = rate,
                                                       .moments = {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 0.01},
                                                       .weight_decay = decay,
                                                       .clip_norm = largest_norm});
  else
    optimizer = std::make_unique<Sgd>(Sgd::Options{.learning_rate = rate,
                                                   .momentum = rule == Rule::momentum ? 0.75 : 0,
                                                   .weight_decay = decay,
                                                   .clip_norm = largest_norm});
  StepProgram program;
  program.add_layers();
  program.strategy.seal();
  InDouble expected{rule, program};
  const std::int64_t samples[] = {3, 9, 5, 6, 4, 7};
  for (std::uint64_t step = 0; step < 6; ++step) {
    std::vector<Tensor> sums;
    for (std::size_t i = 0; i < program.variables.size(); ++i)
      sums.push_back(noise(program.variables[i].dtype(), program.variables[i].shape(), 100 + 10 * step + i));
    program.step(*optimizer, sums, samples[step]);
    expected.step(sums, static_cast<double>(samples[step]), rates[step], decay, largest_norm);
  }
  // Some were clipped, and some were not.
  CHECK(*std::max_element(expected.norms.begin(), expected.norms.end()) > largest_norm);
  CHECK(*std::min_element(expected.norms.begin(), expected.norms.end()) < largest_norm);

  const auto got = program.values();
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Values are below 2, and six steps round one of them about ten times each, the roundings of the step's parts,
    // which are smaller, among them.
    const double epsilon = program.variables[i].dtype() == DType::f32 ? std::numeric_limits<float>::epsilon()
                                                                      : std::numeric_limits<double>::epsilon();
    for (std::size_t j = 0; j < got[i].size(); ++j) {
      CAPTURE(program.variables[i].name(), j);
      CHECK(got[i][j] == Approx(expected.values()[i][j]).margin(60 * epsilon).epsilon(0));
    }
  }
}

TEST_CASE("weights of two and more dimensions decay, and biases do not, between them or not") {
  StepProgram program;
  program.add("scalar", Tensor::scalar(4.0F));
  program.add("bias", Tensor::from({4.0F, -8.0F}, {2}));
  program.add("weight", Tensor::from({4.0F, -8.0F}, {1, 2}));
  program.add("gain", Tensor::from({1.0F}, {1}));
  program.add("filter", Tensor::from({4.0F, -8.0F}, {1, 1, 2, 1}));
  std::vector<Tensor> zeros;
  for (const Variable& variable : program.variables) zeros.push_back(Tensor::zeros(DType::f32, variable.shape()));
  Sgd sgd{{.learning_rate = 0.5, .weight_decay = 0.5}};
  program.step(sgd, zeros);
  CHECK(program.values() == std::vector<std::vector<double>>{{4}, {4, -8}, {3, -6}, {1}, {3, -6}});
  Sgd momentum{{.learning_rate = 0.5, .momentum = 0.5, .weight_decay = 0.5}};
  program.step(momentum, zeros);
  CHECK(program.values() == std::vector<std::vector<double>>{{4}, {4, -8}, {2.25, -4.5}, {1}, {2.25, -4.5}});
  AdamW adamw{{.learning_rate = 0.5, .weight_decay = 0.5}};
  program.step(adamw, zeros);
  CHECK(program.values() == std::vector<std::vector<double>>{{4}, {4, -8}, {1.6875, -3.375}, {1}, {1.6875, -3.375}});
}

TEST_CASE("without decay all variables are one pass; with it, neighbours that decay alike are") {
  StepProgram program;
  for (const auto& [name, shape] : std::vector<std::pair<const char*, Shape>>{
           {"w1", {3, 2}}, {"w2", {2, 2}}, {"b2", {2}}, {"gain", {2}}, {"w3", {100, 1}}, {"b3", {1}}})
    program.add(name, Tensor::zeros(DType::f32, shape));
  std::vector<Tensor> zeros;
  for (const Variable& variable : program.variables) zeros.push_back(Tensor::zeros(DType::f32, variable.shape()));

  DecayRecorder all{0};
  program.step(all, zeros);
  CHECK(all.counts == std::vector<std::int64_t>{7 * 64});
  CHECK(all.decays == std::vector<double>{0});

  // Memory is in reverse order of creation, and views are of multiples of 64 elements.
  DecayRecorder two{0.25};
  program.step(two, zeros);
  CHECK(two.counts == std::vector<std::int64_t>{128, 128, 64, 128});
  CHECK(two.decays == std::vector<double>{0.25, 0.25, 0, 0});
}

TEST_CASE("a gradient that is no longer than allowed is left as it is, to the bit") {
  StepProgram plain, clipped;
  const std::vector<Tensor> sums{Tensor::from({6.0F, 0.0F}, {2}), Tensor::from({8.0}, {1})};  // 5 long, over 2 samples
  for (StepProgram* program : {&plain, &clipped}) {
    program->add("a", noise(DType::f32, {2}, 1));
    program->add("b", noise(DType::f64, {1}, 2));
  }
  Sgd one{{.learning_rate = 0.3, .momentum = 0.9}};
  Sgd other{{.learning_rate = 0.3, .momentum = 0.9, .clip_norm = 5}};
  for (int step = 0; step < 3; ++step) {
    plain.step(one, sums, std::int64_t{2});
    clipped.step(other, sums, std::int64_t{2});
  }
  CHECK(plain.values() == clipped.values());
}

TEST_CASE("a longer gradient is made as short as allowed, over all variables and behind the division") {
  StepProgram program;
  program.add("a", Tensor::from({0.0F, 0.0F}, {2}));
  program.add("b", Tensor::from({0.0}, {1}));
  const std::vector<Tensor> sums{Tensor::from({6.0F, 0.0F}, {2}), Tensor::from({8.0}, {1})};
  Sgd half{{.learning_rate = 1, .clip_norm = 2.5}};
  program.step(half, sums, std::int64_t{2});
  CHECK(program.values() == std::vector<std::vector<double>>{{-1.5, 0}, {-2}});
  // Without samples the sum itself is the gradient, 10 long.
  Sgd quarter{{.learning_rate = 1, .clip_norm = 2.5}};
  program.step(quarter, sums);
  CHECK(program.values() == std::vector<std::vector<double>>{{-3, 0}, {-4}});
}

TEST_CASE("decay is no part of the norm") {
  StepProgram program;
  program.add("w", Tensor::from({1000.0, 0.0}, {1, 2}));
  Sgd optimizer{{.learning_rate = 0.5, .weight_decay = 0.5, .clip_norm = 2}};
  program.step(optimizer, {Tensor::from({0.0, 2.0}, {1, 2})});
  CHECK(program.values() == std::vector<std::vector<double>>{{750, -1}});
}

TEST_CASE("a gradient that is not finite shortens nothing, and stays to be seen") {
  for (const double bad : {nan_value, infinity}) {
    StepProgram program;
    program.add("a", Tensor::from({1.0, 1.0}, {2}));
    Sgd optimizer{{.learning_rate = 0.5, .clip_norm = 1}};
    program.step(optimizer, {Tensor::from({bad, 2.0}, {2})});
    CHECK_FALSE(std::isfinite(program.values()[0][0]));
    CHECK(program.values()[0][1] == 0);
  }
}

TEST_CASE("steps are counted in the store where one is made, and go by the schedule") {
  StepProgram program;
  program.add("w", Tensor::scalar(0.0));
  const std::vector<Tensor> one{Tensor::scalar(1.0)};
  Sgd optimizer{{.learning_rate = LearningRate{{.peak = 4, .warmup_steps = 3}}}};
  CHECK(optimizer.steps(program.strategy) == 0);
  program.step(optimizer, one, std::int64_t{1});
  CHECK(program.values()[0][0] == -1);
  program.step(optimizer, one, std::int64_t{0});
  program.step(optimizer, {}, std::int64_t{1});
  CHECK(optimizer.steps(program.strategy) == 1);
  program.step(optimizer, one);
  CHECK(program.values()[0][0] == -3);
  CHECK(optimizer.steps(program.strategy) == 2);

  program.step(optimizer, one);
  CHECK(program.values()[0][0] == -6);
  Sgd another{{.learning_rate = LearningRate{{.peak = 4, .warmup_steps = 3}}, .name = "critic"}};
  program.step(another, one);
  CHECK(program.values()[0][0] == -7);
  CHECK(optimizer.steps(program.strategy) == 3);
  CHECK(state_of(program.strategy) == std::vector<std::string>{"critic@steps", "optimizer@steps"});
}

TEST_CASE("Adam corrects its moments by the steps that were made, also by one of the name before it") {
  StepProgram program;
  program.add("w", Tensor::scalar(0.0));
  const AdamW::Moments moments{.beta1 = 0.5, .beta2 = 0.75, .epsilon = 1};
  for (int epoch = 0; epoch < 2; ++epoch) {
    AdamW adam{{.learning_rate = 1, .moments = moments}};
    program.step(adam, {Tensor::scalar(4.0)});
  }
  // Of equal gradients the corrected moments are 4 and 16 in every step.
  CHECK(program.values()[0][0] == Approx(-2 * 4. / 5).epsilon(1e-15));
}

TEST_CASE("an optimizer's state has a name for each variable, before the first step if it is prepared") {
  StepProgram program;
  program.add("w", Tensor::zeros(DType::f32, {2, 2}));
  program.add("b", Tensor::zeros(DType::f64, {2}));
  AdamW adamw{{.learning_rate = 1}};
  CHECK_THROWS_AS(adamw.prepare(program.strategy, program.variables), ContextError);
  CHECK_THROWS_WITH(adamw.prepare(program.strategy, program.variables), Catch::StartsWith("optim_steps.cpp:"));
  program.strategy.seal();
  CHECK(state_of(program.strategy).empty());
  adamw.prepare(program.strategy, program.variables);
  const std::vector<std::string> names{"w@first_moment", "w@second_moment", "b@first_moment", "b@second_moment",
                                       "optimizer@steps"};
  CHECK(state_of(program.strategy) == names);
  for (const detail::OptimizerState& state : inside(program.strategy.store()).optimizer_state())
    if (state.value.dtype() != DType::i64)
      for (const double each : in_double(state.value)) CHECK(each == 0);
  CHECK(inside(program.strategy.store()).optimizer_state()[1].value.shape() == Shape{2, 2});

  program.step(adamw, {noise(DType::f32, {2, 2}, 1), noise(DType::f64, {2}, 2)});
  adamw.prepare(program.strategy, program.variables);  // what is there stays
  CHECK(adamw.steps(program.strategy) == 1);
  CHECK(state_of(program.strategy) == names);
  Sgd plain{{.learning_rate = 1, .name = "plain"}};
  plain.prepare(program.strategy, program.variables);
  CHECK(state_of(program.strategy).back() == "plain@steps");

  StepProgram stranger;
  CHECK_THROWS_WITH(adamw.prepare(stranger.strategy, program.variables),
                    Catch::StartsWith("prepare (optim_steps.cpp:") &&
                        Catch::EndsWith("): variable 'w' was not created by strategy 0"));
}

TEST_CASE("clipping and decay cost no agreement") {
  StepProgram program;
  program.add_layers();
  std::vector<Tensor> sums;
  for (const Variable& variable : program.variables) sums.push_back(noise(variable.dtype(), variable.shape(), 7));
  AdamW optimizer{{.learning_rate = 0.1, .weight_decay = 0.1, .clip_norm = 0.5}};
  program.step(optimizer, sums, Optimizer::StepSums{.samples = 2, .loss = 1, .correct = 1});
  const std::uint64_t before = program.group->meeting().meetings();
  program.step(optimizer, sums, Optimizer::StepSums{.samples = 2, .loss = 1, .correct = 1});
  CHECK(program.group->meeting().meetings() == before + 2);
}

TEST_CASE("decays, norms and moments outside of their range are refused") {
  for (const double bad : {-0.1, nan_value, infinity}) {
    CHECK_THROWS_WITH(Sgd({.learning_rate = 1, .weight_decay = bad}),
                      Catch::StartsWith("the weight decay is ") && Catch::EndsWith("; expected a number from 0"));
    CHECK_THROWS_AS(AdamW({.learning_rate = 1, .weight_decay = bad}), InvalidArgument);
    CHECK_THROWS_WITH(
        AdamW({.learning_rate = 1, .clip_norm = bad}),
        Catch::StartsWith("the norm to clip gradients to is ") && Catch::EndsWith("; expected a positive number"));
    CHECK_THROWS_WITH(AdamW({.learning_rate = 1, .moments = {.beta1 = bad}}), Catch::StartsWith("beta1 is "));
    CHECK_THROWS_WITH(AdamW({.learning_rate = 1, .moments = {.beta2 = bad}}), Catch::StartsWith("beta2 is "));
    CHECK_THROWS_WITH(AdamW({.learning_rate = 1, .moments = {.epsilon = bad}}), Catch::StartsWith("epsilon is "));
  }
  CHECK_THROWS_AS(Sgd({.learning_rate = 1, .clip_norm = 0}), InvalidArgument);
  CHECK_THROWS_AS(AdamW({.learning_rate = 1, .moments = {.beta1 = 1}}), InvalidArgument);
  CHECK_THROWS_AS(AdamW({.learning_rate = 1, .moments = {.epsilon = 0}}), InvalidArgument);
  CHECK_NOTHROW(AdamW({.learning_rate = 1, .moments = {.beta1 = 0, .beta2 = 0}}));
}

TEST_CASE("every optimizer's pass keeps the copy of bf16 in line with what it updates") {
  const std::shared_ptr<Optimizer> optimizer = GENERATE(
      std::shared_ptr<Optimizer>{std::make_shared<Sgd>(Sgd::Options{.learning_rate = 0.5, .weight_decay = 0.1})},
      std::shared_ptr<Optimizer>{std::make_shared<Sgd>(Sgd::Options{.learning_rate = 0.5, .momentum = 0.75})},
      std::shared_ptr<Optimizer>{std::make_shared<AdamW>(AdamW::Options{.learning_rate = 0.5, .weight_decay = 0.1})});
  StepProgram program;
  const Variable w = program.add("w", noise(DType::f32, {7, 5}, 1)), b = program.add("b", noise(DType::f32, {5}, 2));
  program.strategy.seal();
  // Views from before the steps: whoever asks for new ones could get a copy that was made then.
  const TensorView copies[] = {w.for_reading(DType::bf16), b.for_reading(DType::bf16)};
  for (const std::uint64_t step : {3, 4}) {
    program.step(*optimizer, {noise(DType::f32, {7, 5}, step), noise(DType::f32, {5}, step)});
    for (std::size_t i = 0; i < 2; ++i) {
      const auto values = program.variables[i].for_reading(DType::f32).to_vector<float>();
      const auto rounded = copies[i].to_vector<BFloat16>();
      for (std::size_t j = 0; j < values.size(); ++j) CHECK(rounded[j].bits == BFloat16{values[j]}.bits);
    }
  }
}

}  // namespace lockstep::test::optim_steps_cases
