// The loops of the image kernels over plain memory, for float and double; sums also read bf16. Channels are innermost,
// and the compiler vectorises the loops over them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "models/ops/image_checks.hpp"
#include "models/ops/reference/loops.hpp"

namespace lockstep::ops::loops {

/// Calls `body` for each position of a convolution's result, in memory order. It gets the position's offset in the
/// result and the offset of the first input position that the kernel covers there.
template <class Body>
void for_each_position(const ConvolutionSizes& sizes, Body&& body) {
  std::int64_t result = 0;
  for (std::int64_t image = 0; image < sizes.images; ++image)
    for (std::int64_t row = 0; row < sizes.rows(); ++row)
      for (std::int64_t column = 0; column < sizes.columns(); ++column, result += sizes.outputs)
        body(result, ((image * sizes.height + row) * sizes.width + column) * sizes.inputs);
}

/// The elements that a row of the kernel covers: its positions with all channels, adjacent in memory.
inline std::int64_t kernel_row(const ConvolutionSizes& sizes) {
  return sizes.kernel_width * sizes.inputs;
}
inline std::int64_t image_row(const ConvolutionSizes& sizes) {
  return sizes.width * sizes.inputs;
}

template <class T>
void convolution(const ConvolutionSizes& sizes, const T* x, const T* weight, const T* bias, T* y) {
  const std::int64_t run = kernel_row(sizes);
  for_each_position(sizes, [&](std::int64_t result, std::int64_t from) {
    T* const sums = y + result;
    std::fill_n(sums, sizes.outputs, T{0});
    for (std::int64_t row = 0; row < sizes.kernel_height; ++row)
      for (std::int64_t i = 0; i < run; ++i)
        add_scaled(sums, x[from + row * image_row(sizes) + i], weight + (row * run + i) * sizes.outputs, sizes.outputs);
    add(sums, bias, sizes.outputs);
  });
}

template <class T>
void convolution_gradients(const ConvolutionSizes& sizes, const T* x, const T* dy, T* d_weight, T* d_bias) {
  const std::int64_t run = kernel_row(sizes);
  std::fill_n(d_weight, sizes.kernel_height * run * sizes.outputs, T{0});
  std::fill_n(d_bias, sizes.outputs, T{0});
  for_each_position(sizes, [&](std::int64_t result, std::int64_t from) {
    for (std::int64_t row = 0; row < sizes.kernel_height; ++row)
      for (std::int64_t i = 0; i < run; ++i)
        add_scaled(d_weight + (row * run + i) * sizes.outputs, x[from + row * image_row(sizes) + i], dy + result,
                   sizes.outputs);
    add(d_bias, dy + result, sizes.outputs);
  });
}

template <class T>
void convolution_input_gradient(const ConvolutionSizes& sizes, const T* dy, const T* weight, T* dx) {
  const std::int64_t run = kernel_row(sizes);
  const std::int64_t kernel = sizes.kernel_height * run;
  const std::vector<T> by_output = transposed(weight, kernel, sizes.outputs, sizes.outputs);
  std::fill_n(dx, sizes.images * sizes.height * image_row(sizes), T{0});
  for_each_position(sizes, [&](std::int64_t result, std::int64_t to) {
    for (std::int64_t row = 0; row < sizes.kernel_height; ++row)
      for (std::int64_t output = 0; output < sizes.outputs; ++output)
        add_scaled(dx + to + row * image_row(sizes), dy[result + output],
                   by_output.data() + output * kernel + row * run, run);
  });
}

/// Calls `body` for each window of 2 x 2 positions, in memory order, with the offset of its result and of its first
/// position. The others are one position, one row, and both further.
template <class Body>
void for_each_window(const PoolSizes& sizes, Body&& body) {
  std::int64_t result = 0;
  for (std::int64_t image = 0; image < sizes.images; ++image)
    for (std::int64_t row = 0; row + 1 < sizes.height; row += 2)
      for (std::int64_t column = 0; column + 1 < sizes.width; column += 2, result += sizes.channels)
        body(result, ((image * sizes.height + row) * sizes.width + column) * sizes.channels);
}

/// Offsets of a window's positions from its first one.
inline std::array<std::int64_t, 4> window(const PoolSizes& sizes) {
  const std::int64_t position = sizes.channels;
  const std::int64_t row = sizes.width * sizes.channels;
  return {0, position, row, row + position};
}

/// The largest of a window's four, or a NaN if there is one. Uses only choices between two values, which vectorise.
template <class T>
T largest(const T* first, const std::array<std::int64_t, 4>& at) {
  T best = first[at[0]];
  for (int i = 1; i < 4; ++i) best = best < first[at[i]] ? first[at[i]] : best;
  for (int i = 1; i < 4; ++i) best = first[at[i]] != first[at[i]] ? first[at[i]] : best;
  return best;
}

template <class T>
void max_pool(const PoolSizes& sizes, const T* __restrict x, T* __restrict y) {
  const auto at = window(sizes);
  for_each_window(sizes, [&](std::int64_t result, std::int64_t first) {
    for (std::int64_t channel = 0; channel < sizes.channels; ++channel)
      y[result + channel] = largest(x + first + channel, at);
  });
}

/// Zeroes the last row and column if no window contains them.
template <class T>
void zero_left_out(const PoolSizes& sizes, T* dx) {
  const std::int64_t row = sizes.width * sizes.channels;
  for (std::int64_t image = 0; image < sizes.images; ++image) {
    T* const of_image = dx + image * sizes.height * row;
    if (sizes.width % 2 == 1)
      for (std::int64_t i = 0; i < sizes.height; ++i)
        std::fill_n(of_image + (i + 1) * row - sizes.channels, sizes.channels, T{0});
    if (sizes.height % 2 == 1) std::fill_n(of_image + (sizes.height - 1) * row, row, T{0});
  }
}

template <class T>
void max_pool_gradient(const PoolSizes& sizes, const T* x, const T* dy, T* dx) {
  const auto at = window(sizes);
  for_each_window(sizes, [&](std::int64_t result, std::int64_t first) {
  // No channel reads what another writes, even if dx is x.
#pragma GCC ivdep
    for (std::int64_t channel = 0; channel < sizes.channels; ++channel) {
      const T best = largest(x + first + channel, at);
      T left = dy[result + channel];
      for (const std::int64_t place : at) {
        const std::int64_t i = first + channel + place;
        const T here = x[i] < best ? T{0} : left;
        left = x[i] < best ? left : T{0};
        dx[i] = here;
      }
    }
  });
  zero_left_out(sizes, dx);
}

/// For each channel, the sum over the rows of `term(i, channel)`, where i is the element's index.
template <class Term>
std::vector<double> channel_sums(const ChannelSizes& sizes, Term&& term) {
  std::vector<double> sums(static_cast<std::size_t>(sizes.channels));
  double* __restrict const sum = sums.data();
  for (std::int64_t row = 0; row < sizes.rows(); ++row)
    for (std::int64_t channel = 0; channel < sizes.channels; ++channel)
      sum[channel] += term(row * sizes.channels + channel, channel);
  return sums;
}

/// result[channel] = value(channel), rounded.
template <class T, class Value>
void for_channels(const ChannelSizes& sizes, T* result, Value&& value) {
  for (std::int64_t channel = 0; channel < sizes.channels; ++channel)
    result[channel] = static_cast<T>(value(static_cast<std::size_t>(channel)));
}

/// The numbers by which the elements of each channel are normalised.
template <class T>
struct ChannelScale {
  std::vector<T> mean;
  std::vector<T> inverse_deviation;
};

template <class T>
ChannelScale<T> channel_scale(const ChannelSizes& sizes, const T* mean, const T* variance, std::int64_t samples,
                              double epsilon) {
  const auto channels = static_cast<std::size_t>(sizes.channels);
  ChannelScale<T> scale{std::vector<T>(channels), std::vector<T>(channels)};
  const auto count = static_cast<double>(samples);
  for_channels(sizes, scale.mean.data(), [&](std::size_t channel) { return mean[channel] / count; });
  for_channels(sizes, scale.inverse_deviation.data(),
               [&](std::size_t channel) { return 1 / std::sqrt(variance[channel] / count + epsilon); });
  return scale;
}

/// Sums over samples of means over positions. The mean over no positions is 0.
template <class T>
void store_means(const ChannelSizes& sizes, const std::vector<double>& sums, T* result) {
  const auto positions = static_cast<double>(std::max<std::int64_t>(sizes.positions, 1));
  for_channels(sizes, result, [&](std::size_t channel) { return sums[channel] / positions; });
}

template <class X, class T>
void channel_means(const ChannelSizes& sizes, const X* x, T* result) {
  store_means(sizes, channel_sums(sizes, [=](std::int64_t i, std::int64_t) { return static_cast<double>(x[i]); }),
              result);
}

template <class X, class T>
void channel_variances(const ChannelSizes& sizes, const X* x, const T* means, std::int64_t samples, T* result) {
  std::vector<double> mean(static_cast<std::size_t>(sizes.channels));
  for_channels(sizes, mean.data(), [&](std::size_t channel) { return means[channel] / static_cast<double>(samples); });
  const double* const of = mean.data();
  store_means(sizes,
              channel_sums(sizes,
                           [=](std::int64_t i, std::int64_t channel) {
                             const double distance = x[i] - of[channel];
                             return distance * distance;
                           }),
              result);
}

template <class T>
void batch_norm(const ChannelSizes& sizes, const T* __restrict x, const ChannelScale<T>& scale, const T* gamma,
                const T* beta, T* __restrict y) {
  std::vector<T> factors(static_cast<std::size_t>(sizes.channels));
  for_channels(sizes, factors.data(),
               [&](std::size_t channel) { return gamma[channel] * scale.inverse_deviation[channel]; });
  const T* const mean = scale.mean.data();
  const T* const factor = factors.data();
  for (std::int64_t row = 0; row < sizes.rows(); ++row)
    for (std::int64_t channel = 0; channel < sizes.channels; ++channel) {
      const std::int64_t i = row * sizes.channels + channel;
      y[i] = (x[i] - mean[channel]) * factor[channel] + beta[channel];
    }
}

template <class X, class T>
void batch_norm_gradients(const ChannelSizes& sizes, const X* x, const ChannelScale<T>& scale, const X* dy, T* d_gamma,
                          T* d_beta) {
  const T* const mean = scale.mean.data();
  const auto by_distance = channel_sums(
      sizes, [=](std::int64_t i, std::int64_t channel) { return static_cast<double>(dy[i]) * (x[i] - mean[channel]); });
  const auto sums = channel_sums(sizes, [=](std::int64_t i, std::int64_t) { return static_cast<double>(dy[i]); });
  for_channels(sizes, d_gamma,
               [&](std::size_t channel) { return by_distance[channel] * scale.inverse_deviation[channel]; });
  for_channels(sizes, d_beta, [&](std::size_t channel) { return sums[channel]; });
}

/// dx = gamma / deviation * (dy - d_beta / count - normalised * d_gamma / count), where count is the number of elements
/// of a channel that were normalised together. This is linear in dy and x.
template <class T>
void batch_norm_input_gradient(const ChannelSizes& sizes, const T* __restrict x, const ChannelScale<T>& scale,
                               double count, const T* gamma, const T* dy, const T* d_gamma, const T* d_beta, T* dx) {
  const auto channels = static_cast<std::size_t>(sizes.channels);
  std::vector<T> factors(channels), offsets(channels), slopes(channels);
  for_channels(sizes, factors.data(),
               [&](std::size_t channel) { return gamma[channel] * scale.inverse_deviation[channel]; });
  for_channels(sizes, offsets.data(), [&](std::size_t channel) { return d_beta[channel] / count; });
  for_channels(sizes, slopes.data(),
               [&](std::size_t channel) { return d_gamma[channel] / count * scale.inverse_deviation[channel]; });
  const T* const mean = scale.mean.data();
  const T* const factor = factors.data();
  const T* const offset = offsets.data();
  const T* const slope = slopes.data();
  for (std::int64_t row = 0; row < sizes.rows(); ++row)
    for (std::int64_t channel = 0; channel < sizes.channels; ++channel) {
      const std::int64_t i = row * sizes.channels + channel;
      dx[i] = factor[channel] * (dy[i] - offset[channel] - (x[i] - mean[channel]) * slope[channel]);
    }
}

template <class T>
void moving_average(T* __restrict average, const T* __restrict sum, T divisor, T momentum, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) average[i] = momentum * average[i] + (T{1} - momentum) * (sum[i] / divisor);
}

template <class T>
void multiply(const T* x, const T* __restrict factors, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * factors[i];
}

}  // namespace lockstep::ops::loops
