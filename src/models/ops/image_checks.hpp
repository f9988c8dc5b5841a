// Checks of the operands of image kernels for every backend, like checks.hpp for the other kernels.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/ops/image_kernels.hpp"

namespace lockstep::ops {

/// x [images, height, width, inputs], weight [kernel_height, kernel_width, inputs, outputs] and y [images, rows,
/// columns, outputs].
struct ConvolutionSizes {
  std::int64_t images;
  std::int64_t height;
  std::int64_t width;
  std::int64_t inputs;
  std::int64_t kernel_height;
  std::int64_t kernel_width;
  std::int64_t outputs;

  std::int64_t rows() const { return height - kernel_height + 1; }
  std::int64_t columns() const { return width - kernel_width + 1; }

  bool operator==(const ConvolutionSizes&) const = default;
  auto operator<=>(const ConvolutionSizes&) const = default;
};

ConvolutionSizes check_convolution(DeviceKind device, const TensorView& x, const TensorView& weight,
                                   const TensorView& bias, const TensorView& y);
ConvolutionSizes check_convolution_gradients(DeviceKind device, const TensorView& x, const TensorView& dy,
                                             const TensorView& d_weight, const TensorView& d_bias);
ConvolutionSizes check_convolution_input_gradient(DeviceKind device, const TensorView& dy, const TensorView& weight,
                                                  const TensorView& dx);

/// x [images, height, width, channels].
struct PoolSizes {
  std::int64_t images;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;

  std::int64_t elements() const { return images * height * width * channels; }
  std::int64_t pooled_elements() const { return images * (height / 2) * (width / 2) * channels; }
};

PoolSizes check_max_pool(DeviceKind device, const TensorView& x, const TensorView& y);
PoolSizes check_max_pool_gradient(DeviceKind device, const TensorView& x, const TensorView& dy, const TensorView& dx);

/// x [samples, ..., channels], with the dimensions in between taken as one.
struct ChannelSizes {
  std::int64_t samples;
  std::int64_t positions;
  std::int64_t channels;

  std::int64_t rows() const { return samples * positions; }
};

ChannelSizes check_channel_means(DeviceKind device, const TensorView& x, const TensorView& sum);
ChannelSizes check_channel_variances(DeviceKind device, const TensorView& x, const TensorView& means,
                                     std::int64_t samples, const TensorView& sum);
ChannelSizes check_batch_norm(DeviceKind device, const TensorView& x, const Normalisation& by, const TensorView& gamma,
                              const TensorView& beta, const TensorView& y);
ChannelSizes check_batch_norm_gradients(DeviceKind device, const TensorView& x, const Normalisation& by,
                                        const TensorView& dy, const TensorView& d_gamma, const TensorView& d_beta);
ChannelSizes check_batch_norm_input_gradient(DeviceKind device, const TensorView& x, const Normalisation& by,
                                             const TensorView& gamma, const TensorView& dy, const TensorView& d_gamma,
                                             const TensorView& d_beta, const TensorView& dx);

void check_moving_average(DeviceKind device, const TensorView& average, const TensorView& sum, double divisor);
void check_dropout_mask(DeviceKind device, double rate, const TensorView& mask);
void check_multiply(DeviceKind device, const TensorView& x, const TensorView& factors, const TensorView& y);

}  // namespace lockstep::ops
