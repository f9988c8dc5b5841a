// An mlp that predicts a number.
#include <cstdint>
#include <memory>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "models/nn/mlp.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

MlpOptions regression(DType dtype, Model::Precision precision = Model::Precision::full) {
  return {.inputs = 3,
          .hidden = {4},
          .classes = 1,
          .dtype = dtype,
          .precision = precision,
          .loss = MlpOptions::Loss::squared_error};
}

/// Samples from `first` on, with numbers as labels.
SampleBatch numbered(std::int64_t first, std::int64_t samples, std::int64_t capacity, DType dtype) {
  SampleBatch batch = samples_from(first, samples, capacity, dtype, {3, 1});
  batch.labels = Tensor::zeros(dtype, {capacity});
  for (std::int64_t row = 0; row < samples; ++row)
    set(batch.labels.view(), row, 0.5 * static_cast<double>(first + row));
  return batch;
}

struct RegressionRun {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  Mlp model;

  explicit RegressionRun(const MlpOptions& options, SharedKernels kernels = reference())
      : model{strategy, options, std::move(kernels)} {
    strategy.seal();
  }
  GradientBuffer buffer() { return {strategy.store(), model.variables()}; }
};

}  // namespace

TEST_CASE("the gradients of a squared error agree with finite differences, and rows of padding add nothing") {
  RegressionRun program{regression(DType::f64)};
  SampleBatch batch = numbered(0, 5, 8, DType::f64);
  fill(batch.inputs.view().slice(15, 9), 7);
  const GradientBuffer gradients = program.buffer();
  const double loss = program.model.train_shard(batch, {}, gradients).loss_sum;
  CHECK(program.model.evaluate_shard(batch).loss_sum == loss);
  CHECK(check_against_differences(program.model.variables(), gradients,
                                  [&] { return program.model.evaluate_shard(batch).loss_sum; },
                                  {.step = 1e-6, .margin = 1e-8}) > 10);
  check_shards_add_up(
      program.model, program.buffer(), 0, numbered(0, 7, 8, DType::f64),
      [](std::int64_t first, std::int64_t samples) { return numbered(first, samples, 3, DType::f64); }, 1e-13);
}

TEST_CASE("an evaluation of numbers tells the error of each and what the labels are") {
  RegressionRun program{regression(DType::f32)};
  const SampleBatch batch = numbered(0, 5, 8, DType::f32);
  const std::vector<double> predicted = program.model.logits(batch);
  const ops::Kernels::BatchLoss found = program.model.evaluate_shard(batch);
  double squared = 0, absolute = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    const double error = predicted[i] - 0.5 * static_cast<double>(i);
    squared += error * error;
    absolute += std::abs(error);
  }
  CHECK(found.loss_sum == squared);
  CHECK(found.correct == 0);
  CHECK(found.residuals->absolute == absolute);
  CHECK(found.residuals->labels == 5);
  CHECK(found.residuals->squares == 7.5);
}

TEST_CASE("a number is predicted in bf16 too") {
  const SharedKernels kernels = automatic();
  RegressionRun full{regression(DType::f32), kernels}, narrow{regression(DType::f32, Model::Precision::bf16), kernels};
  const SampleBatch batch = numbered(0, 5, 8, DType::f32);
  const GradientBuffer exact = full.buffer(), rounded = narrow.buffer();
  const double loss = full.model.train_shard(batch, {}, exact).loss_sum;
  CHECK(narrow.model.train_shard(batch, {}, rounded).loss_sum == Approx(loss).epsilon(0.02));
  const Variable bias = full.model.variables().back(), same = narrow.model.variables().back();
  // A gradient of a bias is a sum of errors, each rounded to 8 bits.
  CHECK(in_double(rounded.of(same))[0] == Approx(in_double(exact.of(bias))[0]).epsilon(0.02));
}

TEST_CASE("a squared error is of one output and of labels that are numbers") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  MlpOptions two = regression(DType::f32);
  two.classes = 2;
  CHECK_THROWS_WITH((Mlp{strategy, two, reference()}), "an mlp of 2 outputs for a squared error; expected 1");
  RegressionRun program{regression(DType::f32)};
  CHECK_THROWS_WITH(program.model.evaluate_shard(samples_from(0, 2, 2, DType::f32, {3, 1})),
                    "a shard of inputs f32[2, 3] with labels i32[2]; expected f32[2]");
}
