#include "models/nn/dense.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/element_count.hpp"
#include "models/nn/activations.hpp"
#include "models/nn/initial_values.hpp"
#include "models/nn/layer_checks.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::nn {
namespace {

const DenseOptions& checked(const DenseOptions& options) {
  require_float_weights(options.dtype);
  if (options.inputs < 1 || options.outputs < 1)
    throw InvalidArgument{fmt::format("layer '{}' has {} inputs and {} outputs; expected 1 or more of both",
                                      options.name, options.inputs, options.outputs)};
  (void)element_count({options.inputs, options.outputs});  // no overflow
  return options;
}

Tensor initial_weight(const DenseOptions& options, std::uint64_t ordinal) {
  if (options.normal_stddev)
    return normal_values(options.dtype, {options.inputs, options.outputs}, *options.normal_stddev, options.seed,
                         ordinal, options.functions);
  return glorot_uniform(options.dtype, options.inputs, options.outputs, options.seed, ordinal);
}

}  // namespace

Dense::Dense(Strategy& strategy, const DenseOptions& options, Here here)
    : weight_{strategy.create_variable(
          {.name = checked(options).name + "/weight"},
          [&] { return initial_weight(options, inside(strategy.store()).variables().size()); }, here)},
      bias_{strategy.create_variable(
          {.name = options.name + "/bias"}, [&] { return Tensor::zeros(options.dtype, {options.outputs}); }, here)} {}

void Dense::forward(const ops::Kernels& kernels, const TensorView& x, ops::Kernels::Activation activation,
                    const TensorView& y) const {
  kernels.linear(x, weight_for(x, weight_), values_of(bias_), activation, y);
}

void Dense::backward(const ops::Kernels& kernels, const TensorView& x, const TensorView& dy,
                     const GradientBuffer& gradients) const {
  weight_gradient(kernels, x, dy, gradients);
  bias_gradient(kernels, dy, gradients);
}

void Dense::weight_gradient(const ops::Kernels& kernels, const TensorView& x, const TensorView& dy,
                            const GradientBuffer& gradients) const {
  kernels.matmul(x, ops::Kernels::Transpose::yes, dy, ops::Kernels::Transpose::no, gradients.of(weight_));
  gradients.ready(weight_);
}

void Dense::weight_gradient(const ops::Kernels& kernels, std::span<const ops::Kernels::Factors> shards,
                            const TensorView& d_weight) const {
  kernels.sum_of_products(shards, d_weight);
}

void Dense::bias_gradient(const ops::Kernels& kernels, const TensorView& dy, const GradientBuffer& gradients) const {
  kernels.sum_rows(dy, gradients.of(bias_));
  gradients.ready(bias_);
}

void Dense::backward_input(const ops::Kernels& kernels, const TensorView& dy, const TensorView& dx) const {
  kernels.matmul(dy, ops::Kernels::Transpose::no, weight_for(dy, weight_), ops::Kernels::Transpose::yes, dx);
}

}  // namespace lockstep::nn
