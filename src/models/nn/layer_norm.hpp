// Layer norm: a layer that gives each row of its input mean 0 and variance 1, then a learned scale and offset.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "models/ops/sequence_kernels.hpp"

namespace lockstep::nn {

struct LayerNormOptions {
  std::string name = "norm";
  std::int64_t width;
  DType dtype = DType::f32;
  double epsilon = 1e-5;  ///< added to the variance
};

/// As ops::LayerNorm, for rows [rows, width]. Holds no activations; its caller does.
///
/// Everything but the constructor is LOCAL and needs sealed variables (ContextError). InvalidArgument for operands that
/// do not fit (kernels.hpp).
class LayerNorm {
 public:
  /// COLL. Creates the trainable variables "<name>/gain" [width] (ones), then "<name>/bias" [width] (zeros). Before
  /// that, InvalidArgument for a width below 1 or a dtype other than f32 and f64.
  LayerNorm(Strategy& strategy, const LayerNormOptions& options, Here here = Here::current());

  const Variable& gain() const { return gain_; }
  const Variable& bias() const { return bias_; }

  /// Overwrites y, and moments [rows, 2], which the backward pass needs.
  void forward(const ops::Kernels& kernels, const TensorView& x, const TensorView& y, const TensorView& moments) const;

  /// The gradients of gain and bias, summed over the rows, and of x. Overwrites all three; dx may be dy. Rows whose dy
  /// is zero add nothing.
  void backward(const ops::Kernels& kernels, const TensorView& x, const TensorView& moments, const TensorView& dy,
                const TensorView& dx, const GradientBuffer& gradients) const;

 private:
  double epsilon_;
  MirroredVariable gain_;
  MirroredVariable bias_;
};

}  // namespace lockstep::nn
