// A convolution: a layer that slides a kernel over images.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep::nn {

struct Conv2dOptions {
  std::string name = "conv";
  std::int64_t inputs;      ///< channels
  std::int64_t outputs;     ///< channels
  std::int64_t kernel = 3;  ///< positions along each side
  DType dtype = DType::f32;
  /// Seeds the initial weights, which also depend on how many variables the strategy had before.
  std::uint64_t seed = 0;
};

/// y = x * weight + bias for images x [images, height, width, inputs], with stride 1 and without padding, as
/// ops::ImageKernels::convolution. Holds no activations; its caller does.
///
/// Everything but the constructor is LOCAL and needs sealed variables (ContextError). InvalidArgument for operands that
/// do not fit (kernels.hpp).
class Conv2d {
 public:
  /// COLL. Creates the trainable variables "<name>/weight" [kernel, kernel, inputs, outputs] with Glorot's uniform
  /// values, then "<name>/bias" [outputs] with zeros. Before that, InvalidArgument for a size below 1 or a dtype other
  /// than f32 and f64.
  Conv2d(Strategy& strategy, const Conv2dOptions& options, Here here = Here::current());

  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }

  /// y = activation(x * weight + bias). Overwrites y.
  void forward(const ops::Kernels& kernels, const TensorView& x, ops::Kernels::Activation activation,
               const TensorView& y) const;

  /// The gradients of weight and bias, summed over the images, from the forward pass's x and from dy, the gradient of x
  /// * weight + bias. Overwrites both in `gradients`. Images whose dy is zero add nothing.
  void backward(const ops::Kernels& kernels, const TensorView& x, const TensorView& dy,
                const GradientBuffer& gradients) const;

  /// The gradient of x. Overwrites dx.
  void backward_input(const ops::Kernels& kernels, const TensorView& dy, const TensorView& dx) const;

 private:
  MirroredVariable weight_;
  MirroredVariable bias_;
};

}  // namespace lockstep::nn
