// Launches of kernels for image_kernels.cpp, by the rules of launch.hpp. T may be BFloat16 unless a comment says
// otherwise.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/base/philox4x32.hpp"
#include "core/tensor/computed.hpp"

namespace lockstep::ops::cuda {

/// Images [images, height, width, channels], and the patches of them that a convolution's kernel covers, row by row:
/// [images * rows * columns, kernel_height * kernel_width * channels].
struct Patches {
  std::int64_t images;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;
  std::int64_t kernel_height;
  std::int64_t kernel_width;
  std::int64_t rows;     ///< positions of the kernel
  std::int64_t columns;  ///< the same in a row
};

/// Copies each patch of x.
template <class T>
cudaError_t launch_im2col(const Patches& of, const T* x, T* patches, cudaStream_t stream);

/// dx = for each element, the sum over the patches that contain it, in the order of the kernel's positions.
template <class T>
cudaError_t launch_col2im(const Patches& of, const detail::computed_t<T>* d_patches, T* dx, cudaStream_t stream);

/// Images [images, height, width, channels].
struct Images {
  std::int64_t images;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;
};

template <class T>
cudaError_t launch_max_pool(const Images& of, const T* x, T* y, cudaStream_t stream);

/// dx may be x.
template <class T>
cudaError_t launch_max_pool_gradient(const Images& of, const T* x, const T* dy, T* dx, cudaStream_t stream);

/// Rows [rows, channels]. There may be none, in the sums over them.
struct ChannelRows {
  std::int64_t rows;
  std::int64_t channels;
};

/// What channels are normalised by: sums over `samples` samples.
template <class T>
struct ChannelMoments {
  const T* mean;
  const T* variance;
  double samples;
  double epsilon;
};

/// The numbers of type double that a sum over rows needs as memory.
std::int64_t channel_parts(const ChannelRows& of);

/// sum [channels] = the sum of the rows, divided by `divisor`.
template <class T>
cudaError_t launch_channel_sums(const ChannelRows& of, const T* x, double divisor, double* parts,
                                detail::computed_t<T>* sum, cudaStream_t stream);

/// The same for squared distances from `means` / `samples`.
template <class T>
cudaError_t launch_channel_squares(const ChannelRows& of, const T* x, const detail::computed_t<T>* means,
                                   double samples, double divisor, double* parts, detail::computed_t<T>* sum,
                                   cudaStream_t stream);

/// The same for dy times the normalised x: the gradient of gamma.
template <class T>
cudaError_t launch_channel_products(const ChannelRows& of, const T* x, const ChannelMoments<detail::computed_t<T>>& by,
                                    const T* dy, double* parts, detail::computed_t<T>* sum, cudaStream_t stream);

template <class T>
cudaError_t launch_batch_norm(const ChannelRows& of, const T* x, const ChannelMoments<detail::computed_t<T>>& by,
                              const detail::computed_t<T>* gamma, const detail::computed_t<T>* beta, T* y,
                              cudaStream_t stream);

/// The gradients of gamma and beta are sums over `count` rows. dx may be dy.
template <class T>
cudaError_t launch_batch_norm_gradient(const ChannelRows& of, const T* x,
                                       const ChannelMoments<detail::computed_t<T>>& by, double count,
                                       const detail::computed_t<T>* gamma, const T* dy,
                                       const detail::computed_t<T>* d_gamma, const detail::computed_t<T>* d_beta, T* dx,
                                       cudaStream_t stream);

/// y may be x.
template <class T>
cudaError_t launch_multiply(const T* x, const detail::computed_t<T>* factors, T* y, std::int64_t count,
                            cudaStream_t stream);

// These do not take BFloat16.

template <class T>
cudaError_t launch_moving_average(T* average, const T* sum, T divisor, T momentum, std::int64_t count,
                                  cudaStream_t stream);

/// mask[i] = 0 where word first + i is below `dropped_below`, else `kept`.
template <class T>
cudaError_t launch_dropout_mask(const PhiloxWords& random, std::uint64_t first, std::uint64_t dropped_below, T kept,
                                T* mask, std::int64_t count, cudaStream_t stream);

}  // namespace lockstep::ops::cuda
