// A layer that drops some of its inputs at random.
#pragma once

#include <cstdint>

#include <lockstep/models/nn/model.hpp>
#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::nn {

struct DropoutOptions {
  double rate = 0.5;       ///< probability that an element is dropped
  std::uint64_t seed = 0;  ///< shared by all dropout layers of a model
  int ordinal = 0;         ///< which of those layers this is; below 2^15
};

/// In training, y = x * mask. An element of the mask is 0 with probability `rate`, and 1 / (1 - rate) otherwise
/// (Srivastava et al.: "Dropout: a simple way to prevent neural networks from overfitting", 2014), so evaluation needs
/// no scaling. The mask of a sample is a function of the options, the step, and the sample's index in the step's global
/// batch. It is the same on any rank, however the batch is cut into shards. Every method is LOCAL.
class Dropout {
 public:
  /// InvalidArgument for a rate outside [0, 1) or an ordinal out of range.
  explicit Dropout(const DropoutOptions& options);

  /// Overwrites `mask` [rows, ...] with the mask of the samples from `place` on, and y with x * mask. All have one
  /// shape, and y may be x. InvalidArgument for operands that do not fit, and for a negative place.
  void forward(const ops::Kernels& kernels, const Model::ShardPlace& place, const TensorView& x, const TensorView& mask,
               const TensorView& y) const;

  /// The gradient of x: dx = dy * mask. dx may be dy.
  void backward(const ops::Kernels& kernels, const TensorView& mask, const TensorView& dy, const TensorView& dx) const;

 private:
  DropoutOptions options_;
};

}  // namespace lockstep::nn
