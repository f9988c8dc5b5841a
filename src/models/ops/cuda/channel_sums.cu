// Sums over the rows of each channel, in double. They are two kernels: the first adds up pieces of the rows, a block
// for each piece and 32 channels; the second adds up the pieces. Within a block, each lane adds up every eighth row, in
// order, and the lanes are a tree. So the order depends on the number of rows alone, not on the size of the grid.
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/channel_scale.hpp"
#include "models/ops/cuda/image_launch.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

constexpr int channels_at_once = 32;
constexpr int lanes_of_channel = 8;
constexpr std::int64_t piece_rows = 256;

std::int64_t pieces_of(const ChannelRows& of) {
  return (of.rows + piece_rows - 1) / piece_rows;
}

/// The sum of term(row, channel) for the rows from `first` to before `last`, in the thread of the channel's first lane.
/// All threads of the block must call it, and may call it again: it ends with a barrier, after which each reads only
/// its own place in `sums`, which they share. A channel beyond the last one has no terms.
template <class Term>
__device__ double sum_of_lanes(const Term& term, std::int64_t channel, std::int64_t channels, std::int64_t first,
                               std::int64_t last, double* sums) {
  double sum = 0;
  if (channel < channels)
    for (std::int64_t row = first + threadIdx.y; row < last; row += lanes_of_channel) sum += term(row, channel);
  double* const own = sums + threadIdx.y * channels_at_once + threadIdx.x;
  *own = sum;
  __syncthreads();
  for (unsigned half = lanes_of_channel / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) *own += own[half * channels_at_once];
    __syncthreads();
  }
  return *own;
}

template <class Term>
__global__ void pieces_kernel(ChannelRows of, Term term, std::int64_t pieces, double* parts) {
  __shared__ double sums[channels_at_once * lanes_of_channel];
  // Every thread of a block takes the same turns, because all of them meet in each.
  for (std::int64_t piece = blockIdx.y; piece < pieces; piece += gridDim.y)
    for (std::int64_t tile = blockIdx.x; tile * channels_at_once < of.channels; tile += gridDim.x) {
      const std::int64_t channel = tile * channels_at_once + threadIdx.x;
      const std::int64_t first = piece * piece_rows, end = first + piece_rows;
      const double sum = sum_of_lanes(term, channel, of.channels, first, end < of.rows ? end : of.rows, sums);
      if (threadIdx.y == 0 && channel < of.channels) parts[piece * of.channels + channel] = sum;
    }
}

/// One row of blocks.
template <class T, class Scale>
__global__ void total_kernel(const double* parts, std::int64_t pieces, std::int64_t channels, Scale scaled, T* result) {
  __shared__ double sums[channels_at_once * lanes_of_channel];
  const auto part = [=](std::int64_t piece, std::int64_t channel) { return parts[piece * channels + channel]; };
  for (std::int64_t tile = blockIdx.x; tile * channels_at_once < channels; tile += gridDim.x) {
    const std::int64_t channel = tile * channels_at_once + threadIdx.x;
    const double sum = sum_of_lanes(part, channel, channels, 0, pieces, sums);
    if (threadIdx.y == 0 && channel < channels) result[channel] = static_cast<T>(scaled(sum, channel));
  }
}

template <class T, class Term, class Scale>
cudaError_t sum_over_rows(const ChannelRows& of, const Term& term, const Scale& scaled, double* parts, T* result,
                          cudaStream_t stream) {
  const dim3 block{channels_at_once, lanes_of_channel};
  const unsigned tiles = blocks_for(of.channels, channels_at_once);
  const std::int64_t pieces = pieces_of(of);
  if (pieces > 0)
    if (const cudaError_t status =
            launch(pieces_kernel<Term>, dim3{tiles, blocks_for(pieces, 1)}, block, stream, of, term, pieces, parts);
        status != cudaSuccess)
      return status;
  return launch(total_kernel<T, Scale>, tiles, block, stream, parts, pieces, of.channels, scaled, result);
}

// What is added up, and what is done with the sum. Objects with names, because kernels take them as arguments.

template <class T>
struct Value {
  const T* x;
  std::int64_t channels;

  __device__ double operator()(std::int64_t row, std::int64_t channel) const {
    return static_cast<double>(wide(x[row * channels + channel]));
  }
};

template <class T>
struct SquaredDistance {
  const T* x;
  std::int64_t channels;
  const detail::computed_t<T>* means;
  double samples;

  __device__ double operator()(std::int64_t row, std::int64_t channel) const {
    const double distance =
        static_cast<double>(wide(x[row * channels + channel])) - static_cast<double>(means[channel]) / samples;
    return distance * distance;
  }
};

template <class T>
struct GradientByDistance {
  const T* x;
  const T* dy;
  std::int64_t channels;
  ChannelMoments<detail::computed_t<T>> by;

  __device__ double operator()(std::int64_t row, std::int64_t channel) const {
    const std::int64_t i = row * channels + channel;
    const detail::computed_t<T> distance = wide(x[i]) - mean_of(by, channel);
    return static_cast<double>(wide(dy[i])) * static_cast<double>(distance);
  }
};

struct Divided {
  double divisor;

  __device__ double operator()(double sum, std::int64_t) const { return sum / divisor; }
};

template <class T>
struct ByDeviation {
  ChannelMoments<T> by;

  __device__ double operator()(double sum, std::int64_t channel) const {
    return sum * static_cast<double>(inverse_deviation_of(by, channel));
  }
};

}  // namespace

std::int64_t channel_parts(const ChannelRows& of) {
  return pieces_of(of) * of.channels;
}

template <class T>
cudaError_t launch_channel_sums(const ChannelRows& of, const T* x, double divisor, double* parts,
                                detail::computed_t<T>* sum, cudaStream_t stream) {
  return sum_over_rows(of, Value<T>{x, of.channels}, Divided{divisor}, parts, sum, stream);
}

template <class T>
cudaError_t launch_channel_squares(const ChannelRows& of, const T* x, const detail::computed_t<T>* means,
                                   double samples, double divisor, double* parts, detail::computed_t<T>* sum,
                                   cudaStream_t stream) {
  return sum_over_rows(of, SquaredDistance<T>{x, of.channels, means, samples}, Divided{divisor}, parts, sum, stream);
}

template <class T>
cudaError_t launch_channel_products(const ChannelRows& of, const T* x, const ChannelMoments<detail::computed_t<T>>& by,
                                    const T* dy, double* parts, detail::computed_t<T>* sum, cudaStream_t stream) {
  return sum_over_rows(of, GradientByDistance<T>{x, dy, of.channels, by}, ByDeviation<detail::computed_t<T>>{by}, parts,
                       sum, stream);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                      \
  template cudaError_t launch_channel_sums<T>(const ChannelRows&, const T*, double, double*, detail::computed_t<T>*, \
                                              cudaStream_t);                                                         \
  template cudaError_t launch_channel_squares<T>(const ChannelRows&, const T*, const detail::computed_t<T>*, double, \
                                                 double, double*, detail::computed_t<T>*, cudaStream_t);             \
  template cudaError_t launch_channel_products<T>(const ChannelRows&, const T*,                                      \
                                                  const ChannelMoments<detail::computed_t<T>>&, const T*, double*,   \
                                                  detail::computed_t<T>*, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(BFloat16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
