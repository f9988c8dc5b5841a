// The arithmetic of networks on images: convolutions, pooling, batch normalisation and dropout.
//
// Images lie as [images, height, width, channels], so the channels of a position are adjacent in memory. oneDNN's
// convolutions are as fast on that layout as on the library's own. So nothing is repacked between two layers, and work
// by channel is a loop over rows.
#pragma once

#include <cmath>
#include <cstdint>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops {

/// What activations [samples, ..., channels] are normalised by. Mean and variance are sums over `samples` samples, as
/// channel_means and channel_variances give them, so that those of shards add up.
struct Normalisation {
  TensorView mean;      ///< [channels], times `samples`
  TensorView variance;  ///< [channels], times `samples`
  std::int64_t samples = 1;
  double epsilon = 1e-5;  ///< added to the variance
};

/// Dropout drops an element whose random word is below this. Exact for the usual rates; never off by more than a
/// probability of 2^-33.
inline std::uint64_t dropped_below(double rate) {
  return static_cast<std::uint64_t>(std::llround(rate * 0x1p32));
}

/// A family of kernels (Kernels::image). The rules of kernels.hpp apply here too.
class ImageKernels {
 public:
  virtual ~ImageKernels() = default;

  /// y = activation(x * weight + bias). Each position of y [images, height - kernel_height + 1, width - kernel_width +
  /// 1, outputs] is the sum of x [images, height, width, inputs], at the positions from there on, times weight
  /// [kernel_height, kernel_width, inputs, outputs], plus bias [outputs]. That means stride 1, no padding, and no flip
  /// of the kernel, whose extents are at least 1. y is overwritten. The reference adds the terms of an element in the
  /// order of weight's memory, then the bias.
  virtual void convolution(const TensorView& x, const TensorView& weight, const TensorView& bias,
                           Kernels::Activation activation, const TensorView& y) const = 0;

  /// From dy, the gradient of a convolution's sums, the gradients of its weight and bias, summed over the images.
  /// d_weight and d_bias are overwritten. An image whose dy is zero adds nothing.
  virtual void convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                                     const TensorView& d_bias) const = 0;

  /// The same for x. dx is overwritten.
  virtual void convolution_input_gradient(const TensorView& dy, const TensorView& weight,
                                          const TensorView& dx) const = 0;

  /// y [images, height / 2, width / 2, channels] = the largest of each 2 x 2 positions of x [images, height, width,
  /// channels], or NaN if one of them is NaN. Leaves out the last row or column of an odd extent. y is overwritten.
  virtual void max_pool(const TensorView& x, const TensorView& y) const = 0;

  /// dx = dy where max_pool found its value, 0 elsewhere. That is the first of equal values in memory order, or the
  /// first of the four if one of them is NaN. dx is overwritten, and may be x.
  virtual void max_pool_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const = 0;

  /// sum [channels] = the sum over the samples of each sample's mean over its positions, for x [samples, ...,
  /// channels]. This is the mean of the batch times its number of samples. Added up in double, on the host in memory
  /// order and on a GPU in a fixed tree over the rows. sum is overwritten.
  virtual void channel_means(const TensorView& x, const TensorView& sum) const = 0;

  /// The same for the squared distance from the mean, which `means` [channels] gives as a sum over `samples` samples.
  /// This is the variance of the batch times its number of samples. It divides by the number of elements, not by one
  /// less.
  virtual void channel_variances(const TensorView& x, const TensorView& means, std::int64_t samples,
                                 const TensorView& sum) const = 0;

  /// y = gamma * (x - mean) / sqrt(variance + epsilon) + beta, for x [samples, ..., channels], and gamma and beta
  /// [channels] (Ioffe, Szegedy: "Batch normalization: accelerating deep network training by reducing internal
  /// covariate shift", 2015). y is overwritten.
  virtual void batch_norm(const TensorView& x, const Normalisation& by, const TensorView& gamma, const TensorView& beta,
                          const TensorView& y) const = 0;

  /// From dy, the gradient of y, the gradients of gamma and beta, summed over the samples. Both are overwritten.
  virtual void batch_norm_gradients(const TensorView& x, const Normalisation& by, const TensorView& dy,
                                    const TensorView& d_gamma, const TensorView& d_beta) const = 0;

  /// The gradient of x, on which mean and variance depend too. `by`, d_gamma and d_beta are those of all samples that
  /// were normalised together; x may hold a part of those. dx is overwritten, and may be dy.
  virtual void batch_norm_input_gradient(const TensorView& x, const Normalisation& by, const TensorView& gamma,
                                         const TensorView& dy, const TensorView& d_gamma, const TensorView& d_beta,
                                         const TensorView& dx) const = 0;

  /// average = momentum * average + (1 - momentum) * (sum / divisor). Same shape. `divisor` is positive and finite.
  virtual void moving_average(const TensorView& average, const TensorView& sum, double divisor,
                              double momentum) const = 0;

  /// The mask that dropout multiplies by: mask[i] = 0 with probability `rate`, a number in [0, 1), and 1 / (1 - rate)
  /// otherwise. It is a function of word first + i of `random` (RandomStream::words). mask is overwritten.
  virtual void dropout_mask(const RandomStream& random, std::uint64_t first, double rate,
                            const TensorView& mask) const = 0;

  /// y = x * factors, element by element. Same shape; y may be x.
  virtual void multiply(const TensorView& x, const TensorView& factors, const TensorView& y) const = 0;
};

}  // namespace lockstep::ops
