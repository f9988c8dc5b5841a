#include "apps/lockstep-bench/arithmetic.hpp"

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "apps/lockstep-bench/timing.hpp"

namespace lockstep::bench {
namespace {

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

LargeProduct::LargeProduct(const ops::Kernels& kernels, nn::Model::Precision precision)
    : kernels_{kernels},
      a_{square_of_ones(precision)},
      b_{square_of_ones(precision)},
      c_{Tensor::zeros(a_.dtype(), {extent, extent})} {}

double LargeProduct::rate() {
  using Transpose = ops::Kernels::Transpose;
  const double time =
      microseconds([&] { kernels_.matmul(a_.view(), Transpose::no, b_.view(), Transpose::no, c_.view()); });
  return flops * extent * extent * extent / time * 1e6;
}

}  // namespace lockstep::bench
