#include "models/nn/conv2d.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/element_count.hpp"
#include "models/nn/activations.hpp"
#include "models/nn/initial_values.hpp"
#include "models/nn/layer_checks.hpp"
#include "models/ops/image_kernels.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::nn {
namespace {

const Conv2dOptions& checked(const Conv2dOptions& options) {
  require_float_weights(options.dtype);
  if (options.inputs < 1 || options.outputs < 1 || options.kernel < 1)
    throw InvalidArgument{
        fmt::format("layer '{}' has {} inputs, {} outputs and a kernel of {}; expected 1 or more of all", options.name,
                    options.inputs, options.outputs, options.kernel)};
  (void)element_count({options.kernel, options.kernel, options.inputs, options.outputs});  // no overflow
  return options;
}

}  // namespace

Conv2d::Conv2d(Strategy& strategy, const Conv2dOptions& options, Here here)
    : weight_{strategy.create_variable(
          {.name = checked(options).name + "/weight"},
          [&] {
            return glorot_uniform(options.dtype, {options.kernel, options.kernel, options.inputs, options.outputs},
                                  options.seed, inside(strategy.store()).variables().size());
          },
          here)},
      bias_{strategy.create_variable(
          {.name = options.name + "/bias"}, [&] { return Tensor::zeros(options.dtype, {options.outputs}); }, here)} {}

void Conv2d::forward(const ops::Kernels& kernels, const TensorView& x, ops::Kernels::Activation activation,
                     const TensorView& y) const {
  kernels.image().convolution(x, weight_for(x, weight_), values_of(bias_), activation, y);
}

void Conv2d::backward(const ops::Kernels& kernels, const TensorView& x, const TensorView& dy,
                      const GradientBuffer& gradients) const {
  kernels.image().convolution_gradients(x, dy, gradients.of(weight_), gradients.of(bias_));
  gradients.ready(weight_);
  gradients.ready(bias_);
}

void Conv2d::backward_input(const ops::Kernels& kernels, const TensorView& dy, const TensorView& dx) const {
  kernels.image().convolution_input_gradient(dy, weight_for(dy, weight_), dx);
}

}  // namespace lockstep::nn
