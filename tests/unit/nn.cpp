// The mlp: its variables, gradients, shards and refusals.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/philox.hpp>

#include "core/base/digest.hpp"
#include "models/input/batches.hpp"
#include "models/nn/initial_values.hpp"
#include "models/nn/mlp.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

/// Small, with layers of sizes that leave padding in the store.
MlpOptions small_mlp(DType dtype) {
  return {.inputs = 5, .hidden = {7, 4}, .classes = 3, .dtype = dtype, .seed = 3};
}

/// A sealed mlp on a strategy of one replica.
struct MlpRun {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  Mlp model;

  MlpRun(const MlpOptions& options, SharedKernels kernels) : model{strategy, options, std::move(kernels)} {
    strategy.seal();
  }
  explicit MlpRun(DType dtype, SharedKernels kernels = reference()) : MlpRun{small_mlp(dtype), std::move(kernels)} {}

  GradientBuffer buffer() { return {strategy.store(), model.variables()}; }
};

SampleBatch inputs_from(std::int64_t first, std::int64_t samples, std::int64_t capacity, DType dtype) {
  const MlpOptions options = small_mlp(dtype);
  return nn::samples_from(first, samples, capacity, dtype, {options.inputs, options.classes});
}

std::vector<double> weights_of(const MlpRun& program) {
  std::vector<double> all;
  for (const Variable& variable : program.model.variables())
    for (const double x : in_double(variable.local())) all.push_back(x);
  return all;
}

}  // namespace

TEST_CASE("an mlp creates its variables layer by layer, weight before bias") {
  MlpRun program{DType::f32};
  std::vector<std::string> made;
  for (const Variable& variable : program.model.variables()) {
    CHECK(variable.trainable());
    made.push_back(std::string{variable.name()} + ' ' + describe(variable.local()));
  }
  CHECK(made == std::vector<std::string>{"dense_0/weight f32[5, 7]", "dense_0/bias f32[7]", "dense_1/weight f32[7, 4]",
                                         "dense_1/bias f32[4]", "dense_2/weight f32[4, 3]", "dense_2/bias f32[3]"});
  CHECK(program.model.name() == "mlp");

  MlpRun without_hidden{{.inputs = 2, .hidden = {}, .classes = 3}, reference()};
  CHECK(without_hidden.model.variables().size() == 2);
  SampleBatch batch = make_batch(1, 2, DType::f32);
  batch.samples = 1;
  CHECK(without_hidden.model.train_shard(batch, {}, without_hidden.buffer()).loss_sum == Approx(std::log(3)));
}

TEST_CASE("sizes and types that no mlp can have are refused before anything is created") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const auto refused = [&](MlpOptions options, const char* message) {
    CHECK_THROWS_WITH((Mlp{strategy, options, reference()}), Catch::Contains(message));
    CHECK_THROWS_AS((Mlp{strategy, options, reference()}), InvalidArgument);
    CHECK(inside(strategy.store()).variables().empty());
  };
  refused({.inputs = 0}, "0 inputs");
  refused({.hidden = {512, 0}}, "[512, 0]");
  refused({.hidden = {-1}}, "[-1]");
  refused({.classes = -2}, "-2 classes");
  refused({.dtype = DType::i32}, "i32");
  refused({.hidden = {4, std::int64_t{1} << 40, std::int64_t{1} << 40}}, "");
  CHECK_THROWS_AS((Dense{strategy, {.name = "d", .inputs = 0, .outputs = 1}}), InvalidArgument);
  CHECK_THROWS_AS((Dense{strategy, {.name = "d", .inputs = 1, .outputs = 1, .dtype = DType::u8}}), InvalidArgument);
}

TEST_CASE("initial weights fill Glorot's range evenly, biases are zero") {
  const double limit = std::sqrt(6.0 / (300 + 100));
  const auto values = glorot_uniform(DType::f64, 300, 100, 1, 0).to_vector<double>();
  double low = 0, high = 0, sum = 0;
  for (const double x : values) {
    low = std::min(low, x);
    high = std::max(high, x);
    sum += x;
  }
  CHECK(low >= -limit);
  CHECK(high < limit);
  // Among 30,000 draws the outermost thousandth on each side is not empty, and the mean is within five of its
  // standard deviations, limit / sqrt(3 * 30,000).
  CHECK(low < -0.999 * limit);
  CHECK(high > 0.999 * limit);
  CHECK(std::abs(sum / 30'000) < 5 * limit / 300);

  MlpRun program{DType::f32};
  for (std::size_t i = 1; i < 6; i += 2)
    for (const double x : in_double(program.model.variables()[i].local())) CHECK(x == 0);
}

TEST_CASE("an initial weight depends on the seed, its variable's ordinal and its index alone") {
  const auto weights = glorot_uniform(DType::f64, 3, 4, 9, 2).to_vector<double>();
  const RandomStream stream{9, RandomStream::Purpose::initial_value, 2};
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] == (2 * stream.uniform(i) - 1) * std::sqrt(6.0 / 7));
  // The same sum of sizes, so the same limit: the same numbers in another shape.
  CHECK(glorot_uniform(DType::f64, 4, 3, 9, 2).to_vector<double>() == weights);
  CHECK(glorot_uniform(DType::f64, 3, 4, 8, 2).to_vector<double>() != weights);
  CHECK(glorot_uniform(DType::f64, 3, 4, 9, 3).to_vector<double>() != weights);

  const auto narrow = glorot_uniform(DType::f32, 3, 4, 9, 2).to_vector<float>();
  for (std::size_t i = 0; i < weights.size(); ++i) CHECK(narrow[i] == static_cast<float>(weights[i]));

  // In a model the ordinal counts the strategy's variables.
  MlpRun program{DType::f64};
  CHECK(in_double(program.model.variables()[2].local()) == glorot_uniform(DType::f64, 7, 4, 3, 2).to_vector<double>());

  // Of a convolution the inputs and outputs of all positions under its kernel count.
  const auto kernel = glorot_uniform(DType::f64, {5, 3, 2, 4}, 9, 2).to_vector<double>();
  for (std::size_t i = 0; i < kernel.size(); ++i)
    CHECK(kernel[i] == (2 * stream.uniform(i) - 1) * std::sqrt(6.0 / (5 * 3 * (2 + 4))));
  CHECK_THROWS_WITH(glorot_uniform(DType::f64, {3}, 9, 2), Catch::Contains("expected [..., inputs, outputs]"));
}

TEST_CASE("the initial weights of a seed never change") {
  Digest digest;
  MlpRun program{{.inputs = 784, .hidden = {32}, .classes = 10, .seed = 1}, reference()};
  for (const Variable& variable : program.model.variables())
    digest.update({variable.local().data(), variable.local().bytes()});
  CHECK(to_hex(digest.value()) == "a88ccf0ec02c2056");
}

TEST_CASE("the gradients of an mlp agree with finite differences") {
  MlpRun program{DType::f64};
  Mlp& model = program.model;
  // Biases that are not zero, so that their part in the hidden layers is seen.
  for (std::size_t i = 1; i < 6; i += 2) fill(model.variables()[i].local(), 0.05 * static_cast<double>(i));
  const SampleBatch batch = inputs_from(0, 6, 8, DType::f64);
  const GradientBuffer buffer = program.buffer();
  const ops::Kernels::BatchLoss result = model.train_shard(batch, {}, buffer);
  CHECK(result.loss_sum == model.evaluate_shard(batch).loss_sum);

  // Central differences are off by about h^2 = 1e-10 times the third derivative, and by the rounding of the
  // loss, some 1e-15 * loss / h = 1e-9: a margin of 1e-8. No relu may change sides within h; with these data
  // none does.
  const auto loss = [&] { return model.evaluate_shard(batch).loss_sum; };
  const int nonzero = check_against_differences(model.variables(), buffer, loss, {.step = 1e-5, .margin = 1e-8});
  CHECK(nonzero > 60);  // of 89: not every path is dead
}

TEST_CASE("a dense layer gives the gradient of its inputs too") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const Dense layer{strategy, {.name = "d", .inputs = 2, .outputs = 2, .dtype = DType::f64}};
  strategy.seal();
  layer.weight().assign(Tensor::from({1.0, 2.0, 3.0, 4.0}, {2, 2}));
  layer.bias().assign(Tensor::from({10.0, 20.0}, {2}));
  const auto kernels = reference();
  const Tensor x = Tensor::from({1.0, 2.0, 0.0, 1.0}, {2, 2});
  const Tensor y = Tensor::zeros(DType::f64, {2, 2});
  layer.forward(*kernels, x.view(), ops::Kernels::Activation::none, y.view());
  CHECK(y.to_vector<double>() == std::vector<double>{17, 30, 13, 24});

  const GradientBuffer buffer{strategy.store(), std::vector<Variable>{layer.weight(), layer.bias()}};
  const Tensor dy = Tensor::from({1.0, 0.0, 1.0, -1.0}, {2, 2});
  layer.backward(*kernels, x.view(), dy.view(), buffer);
  CHECK(buffer.of(layer.weight()).to_vector<double>() == std::vector<double>{1, 0, 3, -1});
  CHECK(buffer.of(layer.bias()).to_vector<double>() == std::vector<double>{2, -1});
  const Tensor dx = Tensor::zeros(DType::f64, {2, 2});
  layer.backward_input(*kernels, dy.view(), dx.view());
  CHECK(dx.to_vector<double>() == std::vector<double>{1, 3, -1, -1});
}

TEST_CASE("rows of padding change neither the gradients nor the loss") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    MlpRun program{dtype};
    for (std::size_t i = 1; i < 6; i += 2) fill(program.model.variables()[i].local(), 0.1);
    const GradientBuffer buffer = program.buffer();
    const ops::Kernels::BatchLoss tight = program.model.train_shard(inputs_from(0, 5, 5, dtype), {}, buffer);
    const Tensor expected = Tensor::copy_of(buffer.flat());
    // The reference adds in the order of the rows, so here even the bits are the same.
    const ops::Kernels::BatchLoss padded = program.model.train_shard(inputs_from(0, 5, 16, dtype), {}, buffer);
    CHECK(padded.loss_sum == tight.loss_sum);
    CHECK(padded.correct == tight.correct);
    CHECK(same_bits(buffer.flat(), expected.view()));
  }
}

TEST_CASE("a shard without samples has no loss and a gradient of positive zeros") {
  MlpRun program{DType::f32, automatic()};
  const GradientBuffer buffer = program.buffer();
  for (const Variable& variable : program.model.variables()) fill(buffer.of(variable), -1);
  const SampleBatch empty = inputs_from(0, 0, 16, DType::f32);
  const ops::Kernels::BatchLoss result = program.model.train_shard(empty, {}, buffer);
  CHECK(result.loss_sum == 0);
  CHECK(result.correct == 0);
  CHECK(same_bits(buffer.flat(), Tensor::zeros(DType::f32, {buffer.count()}).view()));
  CHECK(program.model.evaluate_shard(empty).loss_sum == 0);
}

TEST_CASE("a shard's bits do not depend on what the model did before") {
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    MlpRun program{DType::f32, kernels};
    const GradientBuffer buffer = program.buffer();
    const SampleBatch shard = inputs_from(3, 16, 16, DType::f32);
    const ops::Kernels::BatchLoss first = program.model.train_shard(shard, {}, buffer);
    const Tensor expected = Tensor::copy_of(buffer.flat());

    program.model.train_shard(inputs_from(50, 16, 16, DType::f32), {}, buffer);
    program.model.evaluate_shard(inputs_from(90, 40, 64, DType::f32));  // another capacity, larger
    program.model.evaluate_shard(inputs_from(90, 2, 8, DType::f32));    // and smaller
    for (const Variable& variable : program.model.variables())
      fill(buffer.of(variable), std::numeric_limits<double>::quiet_NaN());
    const ops::Kernels::BatchLoss again = program.model.train_shard(shard, {}, buffer);
    CHECK(again.loss_sum == first.loss_sum);
    CHECK(again.correct == first.correct);
    CHECK(same_bits(buffer.flat(), expected.view()));
    CHECK(program.model.evaluate_shard(shard).loss_sum == first.loss_sum);
  }
}

TEST_CASE("the gradient of a batch is the fixed-order sum of its shards', to rounding") {
  MlpRun program{DType::f64};
  // Sums of about 21 terms of size 1: a few units of 2^-53 of each.
  check_shards_add_up(
      program.model, program.buffer(), 0, inputs_from(0, 21, 24, DType::f64),
      [](std::int64_t first, std::int64_t samples) { return inputs_from(first, samples, 16, DType::f64); }, 1e-14);
}

TEST_CASE("f32 is close to f64, on every kernel") {
  MlpRun wide{DType::f64};
  const GradientBuffer exact = wide.buffer();
  const ops::Kernels::BatchLoss expected = wide.model.train_shard(inputs_from(0, 20, 32, DType::f64), {}, exact);
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    MlpRun narrow{DType::f32, kernels};
    const GradientBuffer buffer = narrow.buffer();
    const auto weights = weights_of(wide);
    const auto rounded = weights_of(narrow);
    for (std::size_t i = 0; i < weights.size(); ++i) CHECK(rounded[i] == static_cast<float>(weights[i]));

    const ops::Kernels::BatchLoss result = narrow.model.train_shard(inputs_from(0, 20, 32, DType::f32), {}, buffer);
    CHECK(result.loss_sum == Approx(expected.loss_sum).epsilon(1e-6));
    CHECK(result.correct == expected.correct);
    // Three layers of sums of up to 20 terms below 1, each rounded to 2^-24.
    for (std::size_t v = 0; v < 6; ++v) {
      const auto found = in_double(buffer.of(narrow.model.variables()[v]));
      const auto truth = in_double(exact.of(wide.model.variables()[v]));
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(truth[i]).epsilon(0).margin(1e-5));
    }
  }
}

TEST_CASE("a gradient buffer is laid out as the store is, and clears the padding of other memory") {
  MlpRun program{DType::f32};
  VariableStore& store = program.strategy.store();
  const GradientBuffer home = program.buffer();
  CHECK(home.dtype() == DType::f32);
  CHECK(home.count() == 6 * 64);  // six variables below 64 elements, of 256 bytes each
  for (const Variable& variable : program.model.variables()) {
    CHECK(home.of(variable).data() == store.gradient(variable).data());
    CHECK(home.of(variable).shape() == variable.shape());
  }

  const Tensor other = Tensor::zeros(DType::f32, {home.count()});
  fill(other.view(), std::numeric_limits<double>::quiet_NaN());
  const GradientBuffer there = home.at(other.view());
  program.model.train_shard(inputs_from(0, 4, 4, DType::f32), {}, there);
  program.model.train_shard(inputs_from(0, 4, 4, DType::f32), {}, home);
  CHECK(same_bits(there.flat(), home.flat()));
  CHECK(there.of(program.model.variables()[5]).data() == other.view().data());  // last created, first in memory
}

TEST_CASE("a gradient buffer has a place for statistics where it is given one") {
  MlpRun program{DType::f32};
  CHECK(program.model.statistics() == 0);
  const GradientBuffer home = program.buffer();
  CHECK(home.statistics().count() == 0);
  const Tensor statistics = Tensor::zeros(DType::f32, {3});
  const GradientBuffer with = home.with_statistics(statistics.view());
  CHECK(with.statistics().data() == statistics.view().data());
  CHECK(with.flat().data() == home.flat().data());
  CHECK(with.at(Tensor::zeros(DType::f32, {home.count()}).view()).statistics().count() == 0);
}

TEST_CASE("a gradient buffer is refused for what is not one piece of trainable memory") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const auto make = [&](Variable::Options options, DType dtype = DType::f32) -> Variable {
    return strategy.create_variable(options, [=] { return Tensor::zeros(dtype, {2}); });
  };
  const std::vector<Variable> all{make({.name = "a"}), make({.name = "b"}), make({.name = "c"})};
  CHECK_THROWS_AS((GradientBuffer{strategy.store(), all}), ContextError);
  const Variable fixed = make({.name = "fixed", .trainable = false});
  const Variable wide = make({.name = "wide"}, DType::f64);
  strategy.seal();
  const GradientBuffer buffer{strategy.store(), all};
  CHECK_THROWS_WITH(buffer.of(wide), Catch::Contains("'wide'"));
  CHECK_THROWS_AS(buffer.at(Tensor::zeros(DType::f32, {buffer.count() - 1}).view()), InvalidArgument);
  CHECK_THROWS_AS(buffer.at(Tensor::zeros(DType::f64, {buffer.count()}).view()), InvalidArgument);
  CHECK_THROWS_AS(buffer.with_statistics(Tensor::zeros(DType::f64, {3}).view()), InvalidArgument);
  const auto refused = [&](std::vector<Variable> variables) {
    CHECK_THROWS_AS((GradientBuffer{strategy.store(), variables}), InvalidArgument);
  };
  refused({});
  refused({all[0], all[2]});
  refused({all[0], fixed});
  refused({all[0], wide});
}

TEST_CASE("a shard that is not the model's is refused, and no gradient is written") {
  MlpRun program{DType::f32};
  const GradientBuffer buffer = program.buffer();
  fill(buffer.flat(), 7);
  const Tensor before = Tensor::copy_of(buffer.flat());
  const auto refused = [&](const SampleBatch& batch, const char* message) {
    CHECK_THROWS_WITH(program.model.train_shard(batch, {}, buffer), Catch::Contains(message));
    CHECK_THROWS_AS(program.model.evaluate_shard(batch), InvalidArgument);
  };
  const SampleBatch good = inputs_from(0, 4, 4, DType::f32);
  refused(inputs_from(0, 4, 4, DType::f64), "f64[4, 5] for an mlp of f32[rows, 5]");
  refused(make_batch(4, 6, DType::f32), "f32[4, 6]");
  refused({good.inputs, Tensor::zeros(DType::i32, {3}), 3}, "i32[3]; expected i32[4]");
  refused({good.inputs, good.labels, 5}, "5 samples in 4 rows");
  refused({good.inputs, good.labels, -1}, "-1 samples");
  const SampleBatch bad_label{good.inputs, Tensor::from({0, 1, 3, 2}, {4}), 4};
  refused(bad_label, "label 3");
  CHECK(same_bits(buffer.flat(), before.view()));
}
