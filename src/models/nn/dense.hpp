// A dense layer, which connects every input with every output.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "models/ops/functions.hpp"

namespace lockstep::nn {

struct DenseOptions {
  std::string name = "dense";
  std::int64_t inputs;
  std::int64_t outputs;
  DType dtype = DType::f32;
  /// Seeds the initial weights, which also depend on how many variables the strategy had before.
  std::uint64_t seed = 0;
  /// If given, initial weights are normal with this standard deviation (initial_values.hpp) instead of Glorot's.
  std::optional<double> normal_stddev = {};
  ops::Functions functions = ops::Functions::of_library;  ///< for normal initial values
};

/// y = x · weight + bias for rows x [rows, inputs], y [rows, outputs]. Holds no activations; its caller does.
///
/// Everything but the constructor is LOCAL and needs sealed variables (ContextError). InvalidArgument for operands that
/// do not fit (kernels.hpp).
class Dense {
 public:
  /// COLL. Creates the trainable variables "<name>/weight" [inputs, outputs], with Glorot's uniform values unless the
  /// options say otherwise, then "<name>/bias" [outputs], with zeros. Before that, InvalidArgument for a size below 1
  /// or a dtype other than f32 and f64.
  Dense(Strategy& strategy, const DenseOptions& options, Here here = Here::current());

  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }

  /// y = activation(x · weight + bias). Overwrites y.
  void forward(const ops::Kernels& kernels, const TensorView& x, ops::Kernels::Activation activation,
               const TensorView& y) const;

  /// The gradients of weight and bias, summed over the rows, from the forward pass's x and from dy, the gradient of x ·
  /// weight + bias. Overwrites both in `gradients`. Rows whose dy is zero add nothing.
  void backward(const ops::Kernels& kernels, const TensorView& x, const TensorView& dy,
                const GradientBuffer& gradients) const;

  /// The two parts of `backward`.
  void weight_gradient(const ops::Kernels& kernels, const TensorView& x, const TensorView& dy,
                       const GradientBuffer& gradients) const;
  void bias_gradient(const ops::Kernels& kernels, const TensorView& dy, const GradientBuffer& gradients) const;

  /// The sum of the weight gradients of several shards, each given as x and dy (Kernels::sum_of_products). Overwrites
  /// d_weight, which has the weight's shape.
  void weight_gradient(const ops::Kernels& kernels, std::span<const ops::Kernels::Factors> shards,
                       const TensorView& d_weight) const;

  /// The gradient of x. Overwrites dx.
  void backward_input(const ops::Kernels& kernels, const TensorView& dy, const TensorView& dx) const;

 private:
  MirroredVariable weight_;
  MirroredVariable bias_;
};

}  // namespace lockstep::nn
