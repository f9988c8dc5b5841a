// The kernels for images on GPU memory.
#pragma once

#include <cstddef>

#include "core/device/cuda/scratch.hpp"
#include "core/device/device.hpp"
#include "models/ops/cuda/image_launch.hpp"
#include "models/ops/image_checks.hpp"
#include "models/ops/image_kernels.hpp"
#include "models/ops/patch_memory.hpp"

namespace lockstep::ops::cuda {

using detail::cuda::Scratch;

/// Convolutions are products of the patches of their images (im2col: Chellapilla, Puri, Simard: "High performance
/// convolutional neural networks for document processing", 2006). Their gradients are products of the same matrix.
class CudaImageKernels final : public ImageKernels {
 public:
  /// Enqueues on `stream`, and has `kernels` multiply there. Both must outlive it. `bytes` limits the memory for
  /// patches; the bits of the gradients of weights depend on it.
  CudaImageKernels(Stream& stream, const Kernels& kernels, std::size_t bytes = patch_bytes)
      : stream_{stream}, kernels_{kernels}, bytes_{bytes}, memory_{stream} {}

  void convolution(const TensorView& x, const TensorView& weight, const TensorView& bias,
                   Kernels::Activation activation, const TensorView& y) const override;
  void convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                             const TensorView& d_bias) const override;
  void convolution_input_gradient(const TensorView& dy, const TensorView& weight, const TensorView& dx) const override;
  void max_pool(const TensorView& x, const TensorView& y) const override;
  void max_pool_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const override;
  void channel_means(const TensorView& x, const TensorView& sum) const override;
  void channel_variances(const TensorView& x, const TensorView& means, std::int64_t samples,
                         const TensorView& sum) const override;
  void batch_norm(const TensorView& x, const Normalisation& by, const TensorView& gamma, const TensorView& beta,
                  const TensorView& y) const override;
  void batch_norm_gradients(const TensorView& x, const Normalisation& by, const TensorView& dy,
                            const TensorView& d_gamma, const TensorView& d_beta) const override;
  void batch_norm_input_gradient(const TensorView& x, const Normalisation& by, const TensorView& gamma,
                                 const TensorView& dy, const TensorView& d_gamma, const TensorView& d_beta,
                                 const TensorView& dx) const override;
  void moving_average(const TensorView& average, const TensorView& sum, double divisor, double momentum) const override;
  void dropout_mask(const RandomStream& random, std::uint64_t first, double rate,
                    const TensorView& mask) const override;
  void multiply(const TensorView& x, const TensorView& factors, const TensorView& y) const override;

 private:
  /// sum = the sum of x over its rows, divided by `divisor`.
  void sum_channels(const ChannelRows& of, const TensorView& x, double divisor, const TensorView& sum) const;

  Stream& stream_;
  const Kernels& kernels_;
  std::size_t bytes_;
  Scratch memory_;  ///< for patches, and for parts of sums
};

}  // namespace lockstep::ops::cuda
