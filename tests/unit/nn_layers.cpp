// Convolution, batch norm and dropout as layers.
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "models/nn/batch_norm.hpp"
#include "models/nn/conv2d.hpp"
#include "models/nn/dropout.hpp"
#include "models/nn/initial_values.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

struct Alone {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);

  std::size_t created() { return inside(strategy.store()).variables().size(); }
};

void refused(const std::function<void()>& call, const char* message) {
  CHECK_THROWS_AS(call(), InvalidArgument);
  CHECK_THROWS_WITH(call(), Catch::Contains(message));
}

/// Overwrites `statistics` with those of x, normalised by itself.
void measure(const BatchNorm& layer, const Tensor& x, const Tensor& statistics) {
  layer.measure_means(*reference(), x.view(), statistics.view());
  layer.measure_variances(*reference(), x.view(), layer.by(statistics.view(), x.shape().front()), statistics.view());
}

/// One behind the other.
Tensor joined(const std::vector<TensorView>& parts) {
  std::vector<double> all;
  for (const TensorView& part : parts)
    for (const double x : in_double(part)) all.push_back(x);
  return Tensor::from(all, {static_cast<std::int64_t>(all.size())});
}

}  // namespace

TEST_CASE("a convolution layer creates its kernel, then its bias") {
  Alone f;
  const Conv2d layer{f.strategy, {.name = "c", .inputs = 2, .outputs = 4, .kernel = 5, .seed = 3}};
  f.strategy.seal();
  CHECK(layer.weight().name() == "c/weight");
  CHECK(same_bits(layer.weight().local(), glorot_uniform(DType::f32, {5, 5, 2, 4}, 3, 0).view()));
  CHECK(layer.bias().name() == "c/bias");
  CHECK(same_bits(layer.bias().local(), Tensor::zeros(DType::f32, {4}).view()));
  CHECK(layer.weight().trainable());
  CHECK(layer.bias().trainable());
}

TEST_CASE("layers refuse sizes and types before they create anything") {
  Alone f;
  const auto convolution = [&](const Conv2dOptions& options, const char* message) {
    refused([&] { Conv2d{f.strategy, options}; }, message);
  };
  convolution({.inputs = 0, .outputs = 1}, "layer 'conv' has 0 inputs, 1 outputs and a kernel of 3");
  convolution({.inputs = 1, .outputs = -1}, "-1 outputs");
  convolution({.inputs = 1, .outputs = 1, .kernel = 0}, "a kernel of 0");
  convolution({.inputs = 1, .outputs = 1, .dtype = DType::i32}, "weights of i32");
  convolution({.inputs = std::int64_t{1} << 40, .outputs = std::int64_t{1} << 40}, "");
  const auto norm = [&](const BatchNormOptions& options, const char* message) {
    refused([&] { BatchNorm{f.strategy, options}; }, message);
  };
  norm({.channels = 0}, "layer 'batch_norm' has 0 channels; expected 1 or more");
  norm({.channels = 1, .epsilon = 0}, "an epsilon of 0; expected a positive number");
  norm({.channels = 1, .momentum = 1}, "a momentum of 1; expected 0 or more and less than 1");
  norm({.channels = 1, .momentum = -0.5}, "a momentum of -0.5");
  norm({.channels = 1, .dtype = DType::bf16}, "weights of bf16");
  CHECK(f.created() == 0);
  for (const double rate : {-0.5, 1.0, std::nan("")})
    refused([&] { Dropout{{.rate = rate}}; }, "expected 0 or more and less than 1");
  refused([&] { Dropout{{.ordinal = -1}}; }, "dropout layer -1 of a model; expected 0 to 32767");
  refused([&] { Dropout{{.ordinal = 1 << 15}}; }, "dropout layer 32768 of a model");
}

TEST_CASE("a convolution layer goes forward and back") {
  Alone f;
  const Conv2d layer{f.strategy, {.name = "c", .inputs = 1, .outputs = 2, .kernel = 2, .dtype = DType::f64}};
  f.strategy.seal();
  // The first output takes the left and lower right, the second twice the upper right.
  layer.weight().assign(Tensor::from({1.0, 0.0, 0.0, 2.0, 1.0, 0.0, 1.0, 0.0}, {2, 2, 1, 2}));
  layer.bias().assign(Tensor::from({10.0, -20.0}, {2}));
  const auto kernels = reference();
  const Tensor x = Tensor::from({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, {1, 2, 3, 1});
  const Tensor y = Tensor::zeros(DType::f64, {1, 1, 2, 2});
  layer.forward(*kernels, x.view(), ops::Kernels::Activation::none, y.view());
  CHECK(y.to_vector<double>() == std::vector<double>{20, -16, 23, -14});
  layer.forward(*kernels, x.view(), ops::Kernels::Activation::relu, y.view());
  CHECK(y.to_vector<double>() == std::vector<double>{20, 0, 23, 0});

  const GradientBuffer gradients{f.strategy.store(), std::vector<Variable>{layer.weight(), layer.bias()}};
  const Tensor dy = Tensor::from({1.0, 0.0, 0.0, 3.0}, {1, 1, 2, 2});
  layer.backward(*kernels, x.view(), dy.view(), gradients);
  CHECK(gradients.of(layer.weight()).to_vector<double>() == std::vector<double>{1, 6, 2, 9, 4, 15, 5, 18});
  CHECK(gradients.of(layer.bias()).to_vector<double>() == std::vector<double>{1, 3});
  const Tensor dx = Tensor::zeros(DType::f64, {1, 2, 3, 1});
  layer.backward_input(*kernels, dy.view(), dx.view());
  CHECK(dx.to_vector<double>() == std::vector<double>{1, 0, 6, 1, 1, 0});
}

TEST_CASE("batch norm begins with a scale of one and with averages of a standard deviation of one") {
  Alone f;
  const BatchNorm layer{f.strategy, {.name = "b", .channels = 3, .dtype = DType::f64}};
  f.strategy.seal();
  const auto is = [](const Variable& variable, const char* name, double value, bool trainable) {
    CHECK(variable.name() == name);
    CHECK(variable.local().to_vector<double>() == std::vector<double>(3, value));
    CHECK(variable.trainable() == trainable);
  };
  is(layer.gamma(), "b/gamma", 1, true);
  is(layer.beta(), "b/beta", 0, true);
  is(layer.moving_mean(), "b/moving_mean", 0, false);
  is(layer.moving_variance(), "b/moving_variance", 1, false);
  CHECK(layer.moving_mean().aggregation() == Variable::Aggregation::mean);
  CHECK(layer.moving_variance().aggregation() == Variable::Aggregation::mean);
  CHECK(layer.statistics() == 6);
}

TEST_CASE("batch norm's averages move towards the statistics of each step's samples") {
  Alone f;
  const BatchNorm layer{f.strategy, {.name = "b", .channels = 2, .epsilon = 1, .momentum = 0.75, .dtype = DType::f64}};
  f.strategy.seal();
  const auto kernels = reference();
  // Two shards, of 3 samples and of 1, of two positions and two channels.
  const Tensor large = Tensor::from({0.0, 1.0, 4.0, 1.0, 0.0, 1.0, 4.0, 1.0, 0.0, 1.0, 4.0, 1.0}, {3, 2, 2});
  const Tensor small = Tensor::from({7.0, 9.0, 9.0, 5.0}, {1, 2, 2});
  const Tensor of_large = noise(DType::f64, {4}, 1), of_small = noise(DType::f64, {4}, 2);
  measure(layer, large, of_large);
  measure(layer, small, of_small);
  CHECK(of_large.to_vector<double>() == std::vector<double>{6, 3, 12, 0});
  CHECK(of_small.to_vector<double>() == std::vector<double>{8, 7, 1, 4});

  kernels->add(of_large.view(), of_small.view());
  layer.absorb(*kernels, of_large.view(), 4);
  CHECK(layer.moving_mean().local().to_vector<double>() == std::vector<double>{3.5 / 4, 2.5 / 4});
  CHECK(layer.moving_variance().local().to_vector<double>() == std::vector<double>{0.75 + 3.25 / 4, 0.75 + 1.0 / 4});

  const Tensor y = Tensor::zeros(DType::f64, {1, 2, 2});
  layer.forward(*kernels, small.view(), layer.by_moving_averages(), y.view());
  const double expected = (7 - 3.5 / 4) / std::sqrt(1.5625 + 1);
  CHECK(y.to_vector<double>()[0] == Approx(expected).epsilon(1e-15));
}

TEST_CASE("the gradients of a batch norm layer agree with finite differences") {
  Alone f;
  const BatchNorm layer{f.strategy, {.channels = 3, .dtype = DType::f64}};
  f.strategy.seal();
  layer.gamma().assign(noise(DType::f64, {3}, 1));
  layer.beta().assign(noise(DType::f64, {3}, 2));
  const auto kernels = reference();
  const Tensor x = noise(DType::f64, {4, 2, 3}, 3), weights = noise(DType::f64, {4, 2, 3}, 4);
  const Tensor y = Tensor::zeros(DType::f64, {4, 2, 3}), statistics = Tensor::zeros(DType::f64, {6});
  const auto loss = [&] {
    measure(layer, x, statistics);
    layer.forward(*kernels, x.view(), layer.by(statistics.view(), 4), y.view());
    double sum = 0;
    for (std::size_t i = 0; i < 24; ++i) sum += y.to_vector<double>()[i] * weights.to_vector<double>()[i];
    return sum;
  };
  loss();
  const std::vector<Variable> variables{layer.gamma(), layer.beta()};
  const GradientBuffer gradients{f.strategy.store(), variables};
  const Tensor dx = Tensor::copy_of(weights.view());
  layer.backward(*kernels, x.view(), layer.by(statistics.view(), 4), weights.view(), gradients);
  const Tensor d_parameters = joined({gradients.of(layer.gamma()), gradients.of(layer.beta())});
  layer.backward_input(*kernels, x.view(), layer.by(statistics.view(), 4), dx.view(), d_parameters.view(), dx.view());
  // The loss is linear in gamma and beta, and in x its third derivative is about 10: 1e-9; rounding adds 1e-15 / 1e-5.
  const Differences differences{.step = 1e-5, .margin = 5e-9};
  CHECK(check_against_differences(variables, gradients, loss, differences) == 6);
  check_against_differences(x.view(), dx.view(), loss, differences);
}

TEST_CASE("a dropout mask belongs to a sample of a step, whoever computes it and with which others") {
  const auto kernels = reference();
  const Tensor x = noise(DType::f64, {6, 2, 5}, 1);
  const auto masks = [&](const DropoutOptions& options, const Model::ShardPlace& place, std::int64_t rows) {
    const Tensor mask = Tensor::zeros(DType::f64, {rows, 2, 5}), y = Tensor::zeros(DType::f64, {rows, 2, 5});
    const TensorView of_x = x.view().slice(0, rows * 10).reshaped({rows, 2, 5});
    Dropout{options}.forward(*kernels, place, of_x, mask.view(), y.view());
    const auto factors = mask.to_vector<double>(), found = y.to_vector<double>();
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == x.to_vector<double>()[i] * factors[i]);
    const Tensor dx = Tensor::zeros(DType::f64, {rows, 2, 5});
    Dropout{options}.backward(*kernels, mask.view(), of_x, dx.view());
    CHECK(dx.to_vector<double>() == found);
    return factors;
  };
  const auto whole = masks({.seed = 3}, {.step = 7}, 6);
  CHECK(std::set<double>{whole.begin(), whole.end()} == std::set<double>{0, 2});
  const auto part = masks({.seed = 3}, {.step = 7, .first_sample = 2}, 3);
  CHECK(part == std::vector<double>{whole.begin() + 20, whole.begin() + 50});
  CHECK(masks({.seed = 3}, {.step = 7}, 6) == whole);
  CHECK(masks({.seed = 4}, {.step = 7}, 6) != whole);
  CHECK(masks({.seed = 3}, {.step = 8}, 6) != whole);
  CHECK(masks({.seed = 3, .ordinal = 1}, {.step = 7}, 6) != whole);
  refused([&] { masks({}, {.step = -1}, 6); }, "sample 0 of step -1");
  refused([&] { masks({}, {.first_sample = -2}, 6); }, "sample -2 of step 0");
}
