// How long the arithmetic of a training step takes at least.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/models/ops/kernels.hpp>

#include "apps/lockstep-bench/step_task.hpp"

namespace lockstep::bench {

/// The floating-point operations of a model's products and convolutions in one training step, for each sample: forward,
/// for the gradients of the weights, and for those of the inputs, which the first layer of images does without.
/// Attention counts only the pairs of positions that the mask leaves.
double flops_per_sample(StepModel model, std::int64_t hidden = default_hidden);

/// A product that a rank computes in a training step: c [m, n] = op(a) · op(b), where op(a) is [m, k].
struct StepProduct {
  std::string name;  ///< "dense_0", "dense_0_inputs": of the layer, for its inputs' gradient, for its weights'
  std::int64_t m, n, k;
  ops::Kernels::Transpose transpose_a = ops::Kernels::Transpose::no;
  ops::Kernels::Transpose transpose_b = ops::Kernels::Transpose::no;
  std::int64_t terms = 1;  ///< so many products are added up into c: one of each shard
  std::int64_t count = 1;  ///< how often the step computes this: once for each layer of this shape

  /// Floating-point operations in a step.
  double flops() const;
};

/// The products of dense layers, in f32, of a rank that has so many shards of so many samples. Attention and
/// convolutions are not among them.
std::vector<StepProduct> products_of(StepModel model, std::int64_t hidden, std::int64_t shards,
                                     std::int64_t samples_of_shard);

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
