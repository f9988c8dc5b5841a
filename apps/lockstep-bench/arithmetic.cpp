#include "apps/lockstep-bench/arithmetic.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-bench/timing.hpp"

namespace lockstep::bench {
namespace {

using Transpose = ops::Kernels::Transpose;

constexpr std::int64_t extent = 512;

// A multiplication and an addition.
constexpr double flops = 2;

/// Of a network whose first layer has `first` of its `all` multiplications in the forward pass.
double of_images(double first, double all) {
  return flops * (3 * all - first);
}

Tensor square_of_ones(nn::Model::Precision precision) {
  const Shape shape{extent, extent};
  return precision == nn::Model::Precision::bf16 ? Tensor::from(std::vector(extent * extent, BFloat16{1}), shape)
                                                 : Tensor::from(std::vector<float>(extent * extent, 1), shape);
}

}  // namespace

double flops_per_sample(StepModel model, std::int64_t hidden) {
  switch (model) {
    case StepModel::mlp: {
      const auto width = static_cast<double>(hidden);
      return of_images(784 * width, 784 * width + width * width + width * 10);
    }
    case StepModel::convnet: {
      constexpr double conv_0 = 26 * 26 * 32 * 9, conv_1 = 24 * 24 * 64 * (32 * 9);
      return of_images(conv_0, conv_0 + conv_1 + 12 * 12 * 64 * 128 + 128 * 10);
    }
    case StepModel::gpt: {
      constexpr double width = 128, context = 128, vocabulary = 256, layers = 4;
      constexpr double dense = (3 + 1 + 4 + 4) * width * width, attention = 2 * width * (context + 1) / 2;
      return flops * 3 * context * (layers * (dense + attention) + width * vocabulary);
    }
  }
  throw InvalidArgument{fmt::format("{} is no kind of model", static_cast<int>(model))};
}

double StepProduct::flops() const {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(terms) *
         static_cast<double>(count);
}

std::vector<StepProduct> products_of(StepModel model, std::int64_t hidden, std::int64_t shards,
                                     std::int64_t samples_of_shard) {
  std::vector<StepProduct> products;
  const auto add_layer = [&](const std::string& name, std::int64_t inputs, std::int64_t outputs, std::int64_t count,
                             std::int64_t rows_of_sample, bool has_input_gradient) {
    const std::int64_t rows_of_shard = samples_of_shard * rows_of_sample, rows = shards * rows_of_shard;
    products.push_back({.name = name, .m = rows, .n = outputs, .k = inputs, .count = count});
    if (has_input_gradient)
      products.push_back({.name = name + "_inputs",
                          .m = rows,
                          .n = inputs,
                          .k = outputs,
                          .transpose_b = Transpose::yes,
                          .count = count});
    products.push_back({.name = name + "_weights",
                        .m = inputs,
                        .n = outputs,
                        .k = rows_of_shard,
                        .transpose_a = Transpose::yes,
                        .terms = shards,
                        .count = count});
  };
  switch (model) {
    case StepModel::mlp:
      add_layer("dense_0", 784, hidden, 1, 1, false);
      add_layer("dense_1", hidden, hidden, 1, 1, true);
      add_layer("dense_2", hidden, 10, 1, 1, true);
      return products;
    case StepModel::convnet:
      add_layer("dense_0", 12 * 12 * 64, 128, 1, 1, true);
      add_layer("dense_1", 128, 10, 1, 1, true);
      return products;
    case StepModel::gpt: {
      constexpr std::int64_t width = 128, context = 128, vocabulary = 256, layers = 4;
      add_layer("qkv", width, 3 * width, layers, context, true);
      add_layer("projection", width, width, layers, context, true);
      add_layer("up", width, 4 * width, layers, context, true);
      add_layer("down", 4 * width, width, layers, context, true);
      add_layer("logits", width, vocabulary, 1, context, true);
      return products;
    }
  }
  throw InvalidArgument{fmt::format("{} is no kind of model", static_cast<int>(model))};
}

LargeProduct::LargeProduct(const ops::Kernels& kernels, nn::Model::Precision precision)
    : kernels_{kernels},
      a_{square_of_ones(precision)},
      b_{square_of_ones(precision)},
      c_{Tensor::zeros(a_.dtype(), {extent, extent})} {}

double LargeProduct::rate() {
  const double time =
      microseconds([&] { kernels_.matmul(a_.view(), Transpose::no, b_.view(), Transpose::no, c_.view()); });
  return flops * extent * extent * extent / time * 1e6;
}

}  // namespace lockstep::bench
