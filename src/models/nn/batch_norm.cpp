#include "models/nn/batch_norm.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "models/nn/activations.hpp"
#include "models/nn/layer_checks.hpp"
#include "models/nn/vectors.hpp"
#include "models/ops/image_kernels.hpp"

namespace lockstep::nn {
namespace {

const BatchNormOptions& checked(const BatchNormOptions& options) {
  require_float_weights(options.dtype);
  if (options.channels < 1)
    throw InvalidArgument{
        fmt::format("layer '{}' has {} channels; expected 1 or more", options.name, options.channels)};
  if (!(options.epsilon > 0))
    throw InvalidArgument{
        fmt::format("layer '{}' has an epsilon of {}; expected a positive number", options.name, options.epsilon)};
  if (!(options.momentum >= 0 && options.momentum < 1))
    throw InvalidArgument{fmt::format("layer '{}' has a momentum of {}; expected 0 or more and less than 1",
                                      options.name, options.momentum)};
  return options;
}

Variable::Options moving(std::string name) {
  return {.name = std::move(name), .trainable = false, .aggregation = Variable::Aggregation::mean};
}

}  // namespace

BatchNorm::BatchNorm(Strategy& strategy, const BatchNormOptions& options, Here here)
    : channels_{checked(options).channels},
      epsilon_{options.epsilon},
      momentum_{options.momentum},
      gamma_{strategy.create_variable(
          {.name = options.name + "/gamma"}, [&] { return ones(options.dtype, channels_); }, here)},
      beta_{strategy.create_variable(
          {.name = options.name + "/beta"}, [&] { return Tensor::zeros(options.dtype, {channels_}); }, here)},
      moving_mean_{strategy.create_sync_on_read(
          moving(options.name + "/moving_mean"), [&] { return Tensor::zeros(options.dtype, {channels_}); }, here)},
      moving_variance_{strategy.create_sync_on_read(
          moving(options.name + "/moving_variance"), [&] { return ones(options.dtype, channels_); }, here)} {}

void BatchNorm::measure_means(const ops::Kernels& kernels, const TensorView& x, const TensorView& statistics) const {
  kernels.image().channel_means(x, means(statistics));
}

void BatchNorm::measure_variances(const ops::Kernels& kernels, const TensorView& x, const ops::Normalisation& whole,
                                  const TensorView& statistics) const {
  kernels.image().channel_variances(x, whole.mean, whole.samples, variances(statistics));
}

ops::Normalisation BatchNorm::by(const TensorView& statistics, std::int64_t samples) const {
  return {.mean = means(statistics), .variance = variances(statistics), .samples = samples, .epsilon = epsilon_};
}

ops::Normalisation BatchNorm::by_moving_averages() const {
  return {.mean = moving_mean_.local(), .variance = moving_variance_.local(), .samples = 1, .epsilon = epsilon_};
}

void BatchNorm::forward(const ops::Kernels& kernels, const TensorView& x, const ops::Normalisation& by,
                        const TensorView& y) const {
  kernels.image().batch_norm(x, by, values_of(gamma_), values_of(beta_), y);
}

void BatchNorm::backward(const ops::Kernels& kernels, const TensorView& x, const ops::Normalisation& by,
                         const TensorView& dy, const GradientBuffer& gradients) const {
  kernels.image().batch_norm_gradients(x, by, dy, gradients.of(gamma_), gradients.of(beta_));
}

void BatchNorm::backward_input(const ops::Kernels& kernels, const TensorView& x, const ops::Normalisation& by,
                               const TensorView& dy, const TensorView& d_parameters, const TensorView& dx) const {
  kernels.image().batch_norm_input_gradient(x, by, values_of(gamma_), dy, d_parameters.slice(0, channels_),
                                            d_parameters.slice(channels_, channels_), dx);
}

void BatchNorm::absorb(const ops::Kernels& kernels, const TensorView& statistics, std::int64_t samples) const {
  const auto divisor = static_cast<double>(samples);
  kernels.image().moving_average(moving_mean_.local(), means(statistics), divisor, momentum_);
  kernels.image().moving_average(moving_variance_.local(), variances(statistics), divisor, momentum_);
}

}  // namespace lockstep::nn
