// The loops of sequence models over plain memory, for float and double.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep::ops::loops {

/// term(0) + … + term(n - 1), in an order that vectorises and depends on n alone: term i goes to partial sum i mod 8,
/// and the partial sums are added up pairwise.
template <class T, class Term>
T lane_sum(std::int64_t n, Term&& term) {
  constexpr std::int64_t lanes = 8;
  std::array<T, lanes> sums{};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums[static_cast<std::size_t>(lane)] += term(i + lane);
  for (std::size_t lane = 0; i < n; ++i, ++lane) sums[lane] += term(i);
  for (std::size_t half = lanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

/// One row of layer norm. `moments` are its mean and the inverse of its standard deviation.
template <class T>
void layer_norm_row(const T* __restrict x, const T* __restrict gain, const T* __restrict bias, T epsilon,
                    std::int64_t width, T* __restrict y, T* __restrict moments) {
  const T count = static_cast<T>(width);
  const T mean = lane_sum<T>(width, [=](std::int64_t j) { return x[j]; }) / count;
  const T variance = lane_sum<T>(width, [=](std::int64_t j) { return (x[j] - mean) * (x[j] - mean); }) / count;
  const T inverse = T{1} / std::sqrt(variance + epsilon);
  for (std::int64_t j = 0; j < width; ++j) y[j] = (x[j] - mean) * inverse * gain[j] + bias[j];
  moments[0] = mean;
  moments[1] = inverse;
}

/// One row of layer norm's gradient. With n = (x - mean) * inverse and g = dy * gain,
///   dx = inverse * (g - mean(g) - n * mean(g * n)).
/// Adds the row's part to d_gain and d_bias. dx may be dy.
template <class T>
void layer_norm_gradient_row(const T* __restrict x, const T* __restrict gain, const T* __restrict moments, const T* dy,
                             std::int64_t width, T* dx, T* __restrict d_gain, T* __restrict d_bias) {
  const T mean = moments[0], inverse = moments[1], count = static_cast<T>(width);
  const auto normal = [=](std::int64_t j) { return (x[j] - mean) * inverse; };
  for (std::int64_t j = 0; j < width; ++j) {
    d_gain[j] += dy[j] * normal(j);
    d_bias[j] += dy[j];
  }
  const T mean_g = lane_sum<T>(width, [=](std::int64_t j) { return dy[j] * gain[j]; }) / count;
  const T mean_gn = lane_sum<T>(width, [=](std::int64_t j) { return dy[j] * gain[j] * normal(j); }) / count;
  for (std::int64_t j = 0; j < width; ++j) {
    const T g = dy[j] * gain[j];
    dx[j] = inverse * (g - mean_g - normal(j) * mean_gn);
  }
}

/// Replaces scores[0 to known) by their softmax, and the scores after them, up to n, by zero.
template <class Functions, class T>
void causal_softmax_row(T* scores, std::int64_t known, std::int64_t n) {
  const T largest = *std::max_element(scores, scores + known);
  for (std::int64_t j = 0; j < known; ++j) scores[j] = Functions::exp(scores[j] - largest);
  const T sum = lane_sum<T>(known, [=](std::int64_t j) { return scores[j]; });
  for (std::int64_t j = 0; j < known; ++j) scores[j] /= sum;
  std::fill(scores + known, scores + n, T{0});
}

/// From the gradient of a row's probabilities to that of its scores, in place.
template <class T>
void causal_softmax_gradient_row(const T* __restrict probabilities, T* __restrict d, std::int64_t known,
                                 std::int64_t n) {
  const T mean = lane_sum<T>(known, [=](std::int64_t j) { return probabilities[j] * d[j]; });
  for (std::int64_t j = 0; j < known; ++j) d[j] = probabilities[j] * (d[j] - mean);
  std::fill(d + known, d + n, T{0});
}

}  // namespace lockstep::ops::loops
