#include "models/nn/layer_norm.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "models/nn/activations.hpp"
#include "models/nn/layer_checks.hpp"
#include "models/nn/vectors.hpp"
#include "models/ops/sequence_kernels.hpp"

namespace lockstep::nn {
namespace {

const LayerNormOptions& checked(const LayerNormOptions& options) {
  require_float_weights(options.dtype);
  if (options.width < 1)
    throw InvalidArgument{fmt::format("layer '{}' is {} wide; expected 1 or more", options.name, options.width)};
  return options;
}

}  // namespace

LayerNorm::LayerNorm(Strategy& strategy, const LayerNormOptions& options, Here here)
    : epsilon_{options.epsilon},
      gain_{strategy.create_variable(
          {.name = checked(options).name + "/gain"}, [&] { return ones(options.dtype, options.width); }, here)},
      bias_{strategy.create_variable(
          {.name = options.name + "/bias"}, [&] { return Tensor::zeros(options.dtype, {options.width}); }, here)} {}

void LayerNorm::forward(const ops::Kernels& kernels, const TensorView& x, const TensorView& y,
                        const TensorView& moments) const {
  kernels.sequence().layer_norm(
      {.x = x, .gain = values_of(gain_), .bias = values_of(bias_), .epsilon = epsilon_, .y = y, .moments = moments});
}

void LayerNorm::backward(const ops::Kernels& kernels, const TensorView& x, const TensorView& moments,
                         const TensorView& dy, const TensorView& dx, const GradientBuffer& gradients) const {
  kernels.sequence().layer_norm_gradient({.x = x,
                                          .gain = values_of(gain_),
                                          .moments = moments,
                                          .dy = dy,
                                          .dx = dx,
                                          .d_gain = gradients.of(gain_),
                                          .d_bias = gradients.of(bias_)});
  gradients.ready(gain_);
  gradients.ready(bias_);
}

}  // namespace lockstep::nn
