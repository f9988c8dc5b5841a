// A layer that leaves some of its inputs out, at random.
#pragma once

#include <cstdint>

#include <lockstep/nn/model.hpp>
#include <lockstep/ops/kernels.hpp>

namespace lockstep::nn {

struct DropoutOptions {
  double rate = 0.5;       ///< the probability that an element is left out
  std::uint64_t seed = 0;  ///< of all dropout layers of a model
  int ordinal = 0;         ///< which of them this is, below 2^15
};

/// In training y = x * mask, where an element of the mask is 0 with probability `rate`, and 1 / (1 - rate) otherwise
/// (Srivastava et al.: "Dropout: a simple way to prevent neural networks from overfitting", 2014), so that evaluation
/// needs nothing. The mask of a sample is a function of the options, the step, and the sample's index within the step's
/// global batch: the same on any rank, and however the batch is cut into shards.
class Dropout {
 public:
  /// InvalidArgument for a rate outside [0, 1) or an ordinal out of range.
  explicit Dropout(const DropoutOptions& options);

  /// Overwrites `mask` [rows, ...] with that of the samples from `place` on, and y with x * mask. All are of one shape,
  /// and y may be x. InvalidArgument for operands that do not fit, and for a negative place.
  void forward(const ops::Kernels& kernels, const ShardPlace& place, const TensorView& x, const TensorView& mask,
               const TensorView& y) const;

  /// The gradient of x: dx = dy * mask. dx may be dy.
  void backward(const ops::Kernels& kernels, const TensorView& mask, const TensorView& dy, const TensorView& dx) const;

 private:
  DropoutOptions options_;
};

}  // namespace lockstep::nn
