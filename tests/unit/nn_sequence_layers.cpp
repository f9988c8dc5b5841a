// What a gpt is made of: its initial values, its memory, and its layers.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/device/device.hpp"
#include "models/nn/embedding.hpp"
#include "models/nn/initial_values.hpp"
#include "models/nn/layer_norm.hpp"
#include "models/nn/self_attention.hpp"
#include "models/nn/transformer_block.hpp"
#include "models/nn/workspace.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::test::nn_sequence_layers_cases {

using namespace lockstep::nn;

namespace {

struct LayerRun {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  SharedKernels kernels = reference();

  /// Sealed, with noise in all variables, so that no part of a layer is too small to be seen.
  GradientBuffer seal(const std::vector<Variable>& variables) {
    strategy.seal();
    for (std::size_t i = 0; i < variables.size(); ++i) fill_noise(variables[i].local(), 100 + i);
    return {strategy.store(), variables};
  }
};

/// Some loss of y: its product with fixed numbers, which are then the gradient of y.
double dot(const TensorView& y, const TensorView& dy) {
  double sum = 0;
  for (std::int64_t i = 0; i < y.count(); ++i)
    sum += y.elements<double>()[static_cast<std::size_t>(i)] * dy.elements<double>()[static_cast<std::size_t>(i)];
  return sum;
}

/// Central differences are off by h^2 = 1e-10 times a third derivative of about ten, and by the rounding of a loss of
/// about ten over h, 1e-10.
constexpr Differences differences{.step = 1e-5, .margin = 1e-8};

}  // namespace

TEST_CASE("normal initial values are Box and Muller's transform of Philox") {
  // By a Python program from the definitions.
  const std::vector<double> expected{-1.1258385563992725, 0.7869302378552193, -0.5089690410423794, -1.5299250256855195};
  const auto values = normal_values(DType::f64, {2, 2}, 2, 9, 3).to_vector<double>();
  // The C library may round the logarithm and the cosine in another way, by one unit in the last place.
  for (std::size_t i = 0; i < 4; ++i) CHECK(values[i] == Approx(expected[i]).epsilon(1e-15));
  const auto portable = normal_values(DType::f64, {2, 2}, 2, 9, 3, ops::Functions::portable).to_vector<double>();
  // Those of Python round 2 pi v, of up to 6.3, before they take its cosine.
  for (std::size_t i = 0; i < 4; ++i) CHECK(portable[i] == Approx(expected[i]).epsilon(1e-14));
  const auto narrow = normal_values(DType::f32, {4}, 2, 9, 3).to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) CHECK(narrow[i] == static_cast<float>(values[i]));
  CHECK(normal_values(DType::f64, {2, 2}, 2, 8, 3).to_vector<double>() != values);
  CHECK(normal_values(DType::f64, {2, 2}, 2, 9, 2).to_vector<double>() != values);
  CHECK(normal_values(DType::f64, {2}, 0, 9, 3).to_vector<double>() == std::vector<double>(2, 0));
  CHECK_THROWS_AS(normal_values(DType::i32, {2}, 1, 1, 1), InvalidArgument);
  for (const double stddev : {-1., std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    CHECK_THROWS_WITH(normal_values(DType::f32, {2}, stddev, 1, 1), Catch::Contains("expected a number from 0 on"));
}

TEST_CASE("normal initial values have the moments of a normal distribution") {
  constexpr int count = 100'000;
  double sum = 0, squares = 0, fourths = 0;
  for (const double x : normal_values(DType::f64, {count}, 1, 1, 0).to_vector<double>()) {
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  // Within five standard deviations: those of x, x^2 and x^4 are 1, sqrt(2) and sqrt(96).
  const double deviation = 5 * std::sqrt(count);
  CHECK(std::abs(sum) < deviation);
  CHECK(std::abs(squares - count) < std::sqrt(2) * deviation);
  CHECK(std::abs(fourths - 3 * count) < std::sqrt(96) * deviation);
}

TEST_CASE("a dense layer may begin with normal weights") {
  LayerRun program;
  const Dense first{program.strategy, {.name = "a", .inputs = 2, .outputs = 3, .dtype = DType::f64, .seed = 5}};
  const Dense second{program.strategy,
                     {.name = "b", .inputs = 2, .outputs = 3, .dtype = DType::f64, .seed = 5, .normal_stddev = 0.1}};
  program.strategy.seal();
  CHECK(in_double(first.weight().local()) == glorot_uniform(DType::f64, 2, 3, 5, 0).to_vector<double>());
  CHECK(in_double(second.weight().local()) == normal_values(DType::f64, {2, 3}, 0.1, 5, 2).to_vector<double>());
}

TEST_CASE("views of a workspace lie apart and aligned, and only a larger layout takes other memory") {
  Workspace workspace{DType::f32, Stream::host()};
  struct Views {
    TensorView a, b;
  };
  const auto arrange = [&](std::int64_t rows) {
    return workspace.arrange([&](Workspace& taken) { return Views{taken.take({rows, 3}), taken.take({65})}; });
  };
  const Views small = arrange(2);
  CHECK(small.a.shape() == Shape{2, 3});
  CHECK(small.b.data() - small.a.data() == 256);
  const Views large = arrange(100);
  CHECK(large.b.data() - large.a.data() == 1280);  // 1200 bytes, rounded up to a multiple of 256
  CHECK(reinterpret_cast<std::uintptr_t>(large.a.data()) % Buffer::alignment == 0);
  fill(large.a, 1);
  fill(large.b, 2);
  CHECK(in_double(large.a) == std::vector<double>(300, 1));
  CHECK(arrange(2).a.data() == large.a.data());
  CHECK(arrange(100).b.data() == large.b.data());
}

TEST_CASE("a layer norm begins with gain one and bias zero, and its gradients agree with finite differences") {
  LayerRun program;
  const LayerNorm layer{program.strategy, {.name = "n", .width = 5, .dtype = DType::f64}};
  program.strategy.seal();
  CHECK(layer.gain().name() == "n/gain");
  CHECK(layer.bias().name() == "n/bias");
  CHECK(in_double(layer.gain().local()) == std::vector<double>(5, 1));
  CHECK(in_double(layer.bias().local()) == std::vector<double>(5, 0));

  const std::vector<Variable> variables{layer.gain(), layer.bias()};
  const GradientBuffer gradients = program.seal(variables);
  const Tensor x = noise(DType::f64, {3, 5}, 1), dy = noise(DType::f64, {3, 5}, 2);
  const Tensor y = Tensor::zeros(DType::f64, {3, 5}), moments = Tensor::zeros(DType::f64, {3, 2});
  const auto loss = [&] {
    layer.forward(*program.kernels, x.view(), y.view(), moments.view());
    return dot(y.view(), dy.view());
  };
  loss();
  const Tensor d = Tensor::copy_of(dy.view());
  layer.backward(*program.kernels, x.view(), moments.view(), d.view(), d.view(), gradients);
  check_against_differences(x.view(), d.view(), loss, differences);
  check_against_differences(variables, gradients, loss, differences);
}

TEST_CASE("an embedding adds a token's vector and its position's") {
  LayerRun program;
  const Embedding layer{program.strategy, {.vocabulary = 3, .context = 2, .width = 2, .dtype = DType::f64}};
  program.strategy.seal();
  CHECK(layer.tokens().name() == "token_embedding");
  CHECK(layer.positions().name() == "position_embedding");
  layer.tokens().assign(Tensor::from({1., 2., 3., 4., 5., 6.}, {3, 2}));
  layer.positions().assign(Tensor::from({10., 20., 30., 40.}, {2, 2}));
  const Tensor x = Tensor::zeros(DType::f64, {4, 2});
  layer.forward(*program.kernels, Tensor::from({2, 0, 2, 1}, {2, 2}).view(), x.view()).wait();
  CHECK(x.to_vector<double>() == std::vector<double>{15, 26, 31, 42, 15, 26, 33, 44});

  const Tensor logits = Tensor::zeros(DType::f64, {1, 3});
  layer.forward_logits(*program.kernels, Tensor::from({1., 10.}, {1, 2}).view(), logits.view());
  CHECK(logits.to_vector<double>() == std::vector<double>{21, 43, 65});
}

TEST_CASE("the token embedding gets the gradients of both its uses") {
  LayerRun program;
  const Embedding layer{program.strategy, {.vocabulary = 3, .context = 2, .width = 1, .dtype = DType::f64}};
  program.strategy.seal();
  layer.tokens().assign(Tensor::from({1., 2., 3.}, {3, 1}));
  const GradientBuffer gradients{program.strategy.store(), std::vector<Variable>{layer.tokens(), layer.positions()}};
  fill(gradients.flat(), 1000);  // to be overwritten
  const Tensor x = Tensor::from({1., 10.}, {2, 1}), dx = Tensor::zeros(DType::f64, {2, 1});
  layer.backward_logits(*program.kernels, x.view(), Tensor::from({1., 0., 2., 0., 1., 0.}, {2, 3}).view(), dx.view(),
                        gradients);
  CHECK(dx.to_vector<double>() == std::vector<double>{7, 2});
  CHECK(in_double(gradients.of(layer.tokens())) == std::vector<double>{1, 10, 2});
  layer.backward(*program.kernels, Tensor::from({2, 0, 2, 2}, {2, 2}).view(),
                 Tensor::from({0.25, 0.5, 4., 8.}, {4, 1}).view(), gradients);
  CHECK(in_double(gradients.of(layer.tokens())) == std::vector<double>{1.5, 10, 14.25});
  CHECK(in_double(gradients.of(layer.positions())) == std::vector<double>{4.25, 8.5});
}

TEST_CASE("the gradients of self-attention agree with finite differences") {
  LayerRun program;
  const SelfAttention layer{program.strategy, {.name = "a", .width = 6, .heads = 2, .dtype = DType::f64}};
  const std::vector<Variable> variables{layer.qkv().weight(), layer.qkv().bias(), layer.output().weight(),
                                        layer.output().bias()};
  const GradientBuffer gradients = program.seal(variables);
  CHECK(variables[0].name() == "a/qkv/weight");
  CHECK(variables[0].shape() == Shape{6, 18});
  CHECK(variables[2].name() == "a/output/weight");
  const Windows windows{.count = 2, .context = 4};
  Workspace workspace{DType::f64, Stream::host()};
  const auto [activations, scratch] = workspace.arrange([&](Workspace& taken) {
    return std::pair{layer.take_activations(*program.kernels, taken, windows), layer.take_scratch(taken, windows)};
  });
  const Tensor x = noise(DType::f64, {8, 6}, 1), dy = noise(DType::f64, {8, 6}, 2), y = noise(DType::f64, {8, 6}, 3);
  const auto loss = [&, &activations = activations] {
    layer.forward(*program.kernels, x.view(), activations, y.view());
    return dot(y.view(), dy.view());
  };
  loss();
  const Tensor d = Tensor::copy_of(dy.view());
  layer.backward(*program.kernels, x.view(), activations, d.view(), d.view(), scratch, gradients);
  check_against_differences(x.view(), d.view(), loss, differences);
  check_against_differences(variables, gradients, loss, differences);
}

TEST_CASE("the gradients of a transformer block agree with finite differences") {
  LayerRun program;
  const TransformerBlock block{program.strategy, {.name = "b", .width = 4, .heads = 2, .dtype = DType::f64}};
  const GradientBuffer gradients = program.seal(block.variables());
  const Windows windows{.count = 2, .context = 3};
  Workspace workspace{DType::f64, Stream::host()};
  const auto [activations, scratch] = workspace.arrange([&](Workspace& taken) {
    return std::pair{block.take_activations(*program.kernels, taken, windows), block.take_scratch(taken, windows)};
  });
  const Tensor x = noise(DType::f64, {6, 4}, 1), dy = noise(DType::f64, {6, 4}, 2);
  const auto loss = [&, &activations = activations] {
    block.forward(*program.kernels, x.view(), activations);
    return dot(activations.y, dy.view());
  };
  loss();
  const Tensor d = Tensor::copy_of(dy.view());
  block.backward(*program.kernels, x.view(), activations, d.view(), scratch, gradients);
  check_against_differences(x.view(), d.view(), loss, differences);
  check_against_differences(block.variables(), gradients, loss, differences);
}

TEST_CASE("sizes and types that no layer can have are refused before anything is created") {
  LayerRun program;
  Strategy& strategy = program.strategy;
  CHECK_THROWS_WITH((LayerNorm{strategy, {.name = "n", .width = 0}}), "layer 'n' is 0 wide; expected 1 or more");
  CHECK_THROWS_AS((LayerNorm{strategy, {.width = 1, .dtype = DType::i32}}), InvalidArgument);
  CHECK_THROWS_WITH((Embedding{strategy, {.vocabulary = 0, .context = 1, .width = 1}}),
                    "an embedding of 0 tokens at 1 positions, 1 wide; expected 1 or more of each");
  CHECK_THROWS_AS((Embedding{strategy, {.vocabulary = 1, .context = 0, .width = 1}}), InvalidArgument);
  CHECK_THROWS_AS((Embedding{strategy, {.vocabulary = 1, .context = 1, .width = -1}}), InvalidArgument);
  CHECK_THROWS_AS((Embedding{strategy, {.vocabulary = 1, .context = 1, .width = 1, .dtype = DType::u8}}),
                  InvalidArgument);
  CHECK_THROWS_WITH((SelfAttention{strategy, {.name = "a", .width = 6, .heads = 4}}),
                    "layer 'a' is 6 wide with 4 heads; expected 1 or more heads that divide the width");
  CHECK_THROWS_AS((SelfAttention{strategy, {.width = 6, .heads = 0}}), InvalidArgument);
  CHECK_THROWS_AS((TransformerBlock{strategy, {.width = 0, .heads = 1}}), InvalidArgument);
  CHECK(inside(strategy.store()).variables().empty());
}

}  // namespace lockstep::test::nn_sequence_layers_cases
