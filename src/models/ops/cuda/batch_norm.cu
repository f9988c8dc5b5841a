// Batch norm, element by element, with the host's bits. A block is a tile of rows and channels, so that a thread keeps
// its channel's numbers for all of its rows.
#include "core/device/cuda/elements.hpp"
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/channel_scale.hpp"
#include "models/ops/cuda/image_launch.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

constexpr int tile_channels = 32;
constexpr int tile_rows = 8;

inline __device__ std::int64_t first_row() {
  return static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
}
inline __device__ std::int64_t row_stride() {
  return static_cast<std::int64_t>(gridDim.y) * blockDim.y;
}

template <class T>
__global__ void batch_norm_kernel(ChannelRows of, const T* x, ChannelMoments<detail::computed_t<T>> by,
                                  const detail::computed_t<T>* gamma, const detail::computed_t<T>* beta, T* y) {
  using Number = detail::computed_t<T>;
  for (std::int64_t channel = first_index(); channel < of.channels; channel += stride()) {
    const Number mean = mean_of(by, channel), factor = gamma[channel] * inverse_deviation_of(by, channel);
    const Number offset = beta[channel];
    for (std::int64_t row = first_row(); row < of.rows; row += row_stride()) {
      const std::int64_t i = row * of.channels + channel;
      store(y[i], (wide(x[i]) - mean) * factor + offset);
    }
  }
}

/// As on the host: linear in dy and x. A thread reads an element before it writes to it, so dx may be dy.
template <class T>
__global__ void batch_norm_gradient_kernel(ChannelRows of, const T* x, ChannelMoments<detail::computed_t<T>> by,
                                           double count, const detail::computed_t<T>* gamma, const T* dy,
                                           const detail::computed_t<T>* d_gamma, const detail::computed_t<T>* d_beta,
                                           T* dx) {
  using Number = detail::computed_t<T>;
  for (std::int64_t channel = first_index(); channel < of.channels; channel += stride()) {
    const Number mean = mean_of(by, channel), inverse = inverse_deviation_of(by, channel);
    const Number factor = gamma[channel] * inverse;
    const auto offset = static_cast<Number>(static_cast<double>(d_beta[channel]) / count);
    const auto slope =
        static_cast<Number>(static_cast<double>(d_gamma[channel]) / count * static_cast<double>(inverse));
    for (std::int64_t row = first_row(); row < of.rows; row += row_stride()) {
      const std::int64_t i = row * of.channels + channel;
      store(dx[i], factor * (wide(dy[i]) - offset - (wide(x[i]) - mean) * slope));
    }
  }
}

dim3 grid_of(const ChannelRows& of) {
  return {blocks_for(of.channels, tile_channels), blocks_for(of.rows, tile_rows)};
}

}  // namespace

template <class T>
cudaError_t launch_batch_norm(const ChannelRows& of, const T* x, const ChannelMoments<detail::computed_t<T>>& by,
                              const detail::computed_t<T>* gamma, const detail::computed_t<T>* beta, T* y,
                              cudaStream_t stream) {
  return launch(batch_norm_kernel<T>, grid_of(of), dim3{tile_channels, tile_rows}, stream, of, x, by, gamma, beta, y);
}

template <class T>
cudaError_t launch_batch_norm_gradient(const ChannelRows& of, const T* x,
                                       const ChannelMoments<detail::computed_t<T>>& by, double count,
                                       const detail::computed_t<T>* gamma, const T* dy,
                                       const detail::computed_t<T>* d_gamma, const detail::computed_t<T>* d_beta, T* dx,
                                       cudaStream_t stream) {
  return launch(batch_norm_gradient_kernel<T>, grid_of(of), dim3{tile_channels, tile_rows}, stream, of, x, by, count,
                gamma, dy, d_gamma, d_beta, dx);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                 \
  template cudaError_t launch_batch_norm<T>(                                                                    \
      const ChannelRows&, const T*, const ChannelMoments<detail::computed_t<T>>&, const detail::computed_t<T>*, \
      const detail::computed_t<T>*, T*, cudaStream_t);                                                          \
  template cudaError_t launch_batch_norm_gradient<T>(                                                           \
      const ChannelRows&, const T*, const ChannelMoments<detail::computed_t<T>>&, double,                       \
      const detail::computed_t<T>*, const T*, const detail::computed_t<T>*, const detail::computed_t<T>*, T*,   \
      cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(BFloat16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
