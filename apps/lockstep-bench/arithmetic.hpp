// How long the arithmetic of a training step takes at least.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/ops/kernels.hpp>

#include "apps/lockstep-bench/step_task.hpp"

namespace lockstep::bench {

/// The floating-point operations of a model's products and convolutions in one training step, for each sample: forward,
/// for the gradients of the weights, and for those of the inputs, which the first layer of images does without.
/// Attention counts only the pairs of positions that the mask leaves.
double flops_per_sample(StepModel model, std::int64_t hidden = default_hidden);

/// A large product of square matrices of f32, or of bf16: what it reaches is as fast as products get.
class LargeProduct {
 public:
  explicit LargeProduct(const ops::Kernels& kernels, nn::Model::Precision precision = nn::Model::Precision::full);

  /// LOCAL. Multiplies once. Returns the floating-point operations per second.
  double rate();

 private:
  const ops::Kernels& kernels_;
  Tensor a_, b_, c_;
};

}  // namespace lockstep::bench
