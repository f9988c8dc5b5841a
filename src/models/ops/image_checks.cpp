#include "models/ops/image_checks.hpp"

#include <initializer_list>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_count.hpp"
#include "models/ops/checks.hpp"

namespace lockstep::ops {
namespace {

void require_images(std::string_view operation, const TensorView& view) {
  if (view.shape().size() != 4)
    throw InvalidArgument{fmt::format("{}: expected four dimensions, not {}", operation, describe(view))};
}

using Views = std::initializer_list<const TensorView*>;

/// `others` are of the type of x, and `sums` of its sum_type.
void require_types(DeviceKind device, std::string_view operation, const TensorView& x, const Views& others,
                   const Views& sums) {
  for (const TensorView* const other : others) require_one_type(device, operation, x, *other);
  for (const TensorView* const sum : sums) require_sums(device, operation, x, *sum);
}

/// An output: without overlap.
void require_written(std::string_view operation, const TensorView& written, const Views& others) {
  for (const TensorView* const other : others) require_apart(operation, *other, written);
}

ConvolutionSizes require_convolution(std::string_view operation, const TensorView& x, const TensorView& weight,
                                     const TensorView& y) {
  for (const TensorView* const view : {&x, &weight, &y}) require_images(operation, *view);
  const ConvolutionSizes sizes{.images = x.shape()[0],
                               .height = x.shape()[1],
                               .width = x.shape()[2],
                               .inputs = x.shape()[3],
                               .kernel_height = weight.shape()[0],
                               .kernel_width = weight.shape()[1],
                               .outputs = weight.shape()[3]};
  if (sizes.kernel_height < 1 || sizes.kernel_width < 1 || sizes.rows() < 1 || sizes.columns() < 1 ||
      weight.shape()[2] != sizes.inputs)
    throw InvalidArgument{fmt::format("{}: {} is no kernel for {}, expected [1 to {}, 1 to {}, {}, outputs]", operation,
                                      describe(weight), describe(x), sizes.height, sizes.width, sizes.inputs)};
  if (y.shape() != Shape{sizes.images, sizes.rows(), sizes.columns(), sizes.outputs})
    throw InvalidArgument{fmt::format("{}: {} under the kernel {} does not give {}", operation, describe(x),
                                      describe(weight), describe(y))};
  return sizes;
}

void require_vector(std::string_view operation, const TensorView& vector, const TensorView& of) {
  if (vector.shape() != Shape{of.shape().back()})
    throw InvalidArgument{fmt::format("{}: {} does not fit the channels of {}, expected [{}]", operation,
                                      describe(vector), describe(of), of.shape().back())};
}

PoolSizes require_pool(std::string_view operation, const TensorView& x, const TensorView& y) {
  for (const TensorView* const view : {&x, &y}) require_images(operation, *view);
  const PoolSizes sizes{
      .images = x.shape()[0], .height = x.shape()[1], .width = x.shape()[2], .channels = x.shape()[3]};
  const Shape pooled{sizes.images, sizes.height / 2, sizes.width / 2, sizes.channels};
  if (y.shape() != pooled)
    throw InvalidArgument{
        fmt::format("{}: {} does not pool to {}, expected {}", operation, describe(x), describe(y), describe(pooled))};
  return sizes;
}

ChannelSizes require_channels(DeviceKind device, std::string_view operation, const TensorView& x,
                              const Views& vectors) {
  require_activations(device, operation, x);
  if (x.shape().size() < 2)
    throw InvalidArgument{fmt::format("{}: expected two dimensions or more, not {}", operation, describe(x))};
  for (const TensorView* const vector : vectors) {
    require_sums(device, operation, x, *vector);
    require_vector(operation, *vector, x);
  }
  const Shape& shape = x.shape();
  return {.samples = shape.front(),
          .positions = element_count({shape.begin() + 1, shape.end() - 1}),
          .channels = shape.back()};
}

void require_samples(std::string_view operation, std::int64_t samples) {
  if (samples < 1)
    throw InvalidArgument{fmt::format("{}: the mean is a sum over {} samples, expected 1 or more", operation, samples)};
}

}  // namespace

ConvolutionSizes check_convolution(DeviceKind device, const TensorView& x, const TensorView& weight,
                                   const TensorView& bias, const TensorView& y) {
  constexpr std::string_view operation = "convolution";
  require_types(device, operation, x, {&y, &weight}, {&bias});
  require_written(operation, y, {&x, &weight, &bias});
  const ConvolutionSizes sizes = require_convolution(operation, x, weight, y);
  require_vector(operation, bias, y);
  return sizes;
}

ConvolutionSizes check_convolution_gradients(DeviceKind device, const TensorView& x, const TensorView& dy,
                                             const TensorView& d_weight, const TensorView& d_bias) {
  constexpr std::string_view operation = "convolution_gradients";
  require_types(device, operation, x, {&dy}, {&d_weight, &d_bias});
  require_written(operation, d_weight, {&x, &dy, &d_bias});
  require_written(operation, d_bias, {&x, &dy});
  const ConvolutionSizes sizes = require_convolution(operation, x, d_weight, dy);
  require_vector(operation, d_bias, dy);
  return sizes;
}

ConvolutionSizes check_convolution_input_gradient(DeviceKind device, const TensorView& dy, const TensorView& weight,
                                                  const TensorView& dx) {
  constexpr std::string_view operation = "convolution_input_gradient";
  require_types(device, operation, dx, {&dy, &weight}, {});
  require_written(operation, dx, {&dy, &weight});
  return require_convolution(operation, dx, weight, dy);
}

PoolSizes check_max_pool(DeviceKind device, const TensorView& x, const TensorView& y) {
  require_types(device, "max_pool", x, {&y}, {});
  require_written("max_pool", y, {&x});
  return require_pool("max_pool", x, y);
}

PoolSizes check_max_pool_gradient(DeviceKind device, const TensorView& x, const TensorView& dy, const TensorView& dx) {
  constexpr std::string_view operation = "max_pool_gradient";
  check_same_or_apart(device, operation, x, dx);
  require_types(device, operation, dx, {&dy}, {});
  require_written(operation, dx, {&dy});
  return require_pool(operation, x, dy);
}

ChannelSizes check_channel_means(DeviceKind device, const TensorView& x, const TensorView& sum) {
  const ChannelSizes sizes = require_channels(device, "channel_means", x, {&sum});
  require_apart("channel_means", x, sum);
  return sizes;
}

ChannelSizes check_channel_variances(DeviceKind device, const TensorView& x, const TensorView& means,
                                     std::int64_t samples, const TensorView& sum) {
  constexpr std::string_view operation = "channel_variances";
  const ChannelSizes sizes = require_channels(device, operation, x, {&means, &sum});
  require_samples(operation, samples);
  require_written(operation, sum, {&x, &means});
  return sizes;
}

ChannelSizes check_batch_norm(DeviceKind device, const TensorView& x, const Normalisation& by, const TensorView& gamma,
                              const TensorView& beta, const TensorView& y) {
  constexpr std::string_view operation = "batch_norm";
  const ChannelSizes sizes = require_channels(device, operation, x, {&by.mean, &by.variance, &gamma, &beta});
  require_samples(operation, by.samples);
  check_apart(device, operation, x, y);
  require_written(operation, y, {&by.mean, &by.variance, &gamma, &beta});
  return sizes;
}

ChannelSizes check_batch_norm_gradients(DeviceKind device, const TensorView& x, const Normalisation& by,
                                        const TensorView& dy, const TensorView& d_gamma, const TensorView& d_beta) {
  constexpr std::string_view operation = "batch_norm_gradients";
  const ChannelSizes sizes = require_channels(device, operation, x, {&by.mean, &by.variance, &d_gamma, &d_beta});
  require_samples(operation, by.samples);
  require_same_shape(device, operation, x, dy);
  require_written(operation, d_gamma, {&x, &by.mean, &by.variance, &dy, &d_beta});
  require_written(operation, d_beta, {&x, &by.mean, &by.variance, &dy});
  return sizes;
}

ChannelSizes check_batch_norm_input_gradient(DeviceKind device, const TensorView& x, const Normalisation& by,
                                             const TensorView& gamma, const TensorView& dy, const TensorView& d_gamma,
                                             const TensorView& d_beta, const TensorView& dx) {
  constexpr std::string_view operation = "batch_norm_input_gradient";
  const ChannelSizes sizes =
      require_channels(device, operation, x, {&by.mean, &by.variance, &gamma, &d_gamma, &d_beta});
  require_samples(operation, by.samples);
  check_same_or_apart(device, operation, dy, dx);
  check_apart(device, operation, x, dx);
  require_written(operation, dx, {&by.mean, &by.variance, &gamma, &d_gamma, &d_beta});
  return sizes;
}

void check_moving_average(DeviceKind device, const TensorView& average, const TensorView& sum, double divisor) {
  require_float(device, "moving_average", average);
  check_apart(device, "moving_average", average, sum);
  check_positive("moving_average", "divisor", divisor);
}

void check_dropout_mask(DeviceKind device, double rate, const TensorView& mask) {
  require_float(device, "dropout_mask", mask);
  check_fraction("dropout_mask", "rate", rate);
}

void check_multiply(DeviceKind device, const TensorView& x, const TensorView& factors, const TensorView& y) {
  check_same_or_apart(device, "multiply", x, y);
  require_sums(device, "multiply", x, factors);
  if (factors.shape() != y.shape())
    throw InvalidArgument{fmt::format("multiply: {} and {} are not of one shape", describe(factors), describe(y))};
  require_apart("multiply", factors, y);
}

}  // namespace lockstep::ops
