// The numbers by which the elements of a channel are normalised, rounded as on the host. For .cu files alone.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/ops/cuda/image_launch.hpp"

namespace lockstep::ops::cuda {

template <class T>
__device__ T mean_of(const ChannelMoments<T>& by, std::int64_t channel) {
  return static_cast<T>(static_cast<double>(by.mean[channel]) / by.samples);
}

template <class T>
__device__ T inverse_deviation_of(const ChannelMoments<T>& by, std::int64_t channel) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(by.variance[channel]) / by.samples + by.epsilon));
}

}  // namespace lockstep::ops::cuda
