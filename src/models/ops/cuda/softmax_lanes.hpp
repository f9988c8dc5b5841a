// Softmax cross-entropy of one row by the lanes of a warp, for float and double, and for logits stored as bf16. Lane l
// of n takes the classes l, l + n, l + 2n, ... The caller joins the lanes' results: by shuffles on a GPU, by a loop in
// a test.
//
// The rules are those of the reference's row: the lowest of equal logits is the largest, and what is not finite reaches
// the loss. A NaN is never the largest, nor is -infinity. The sum of the exponentials is NaN if a logit is NaN or
// +infinity, or if all are -infinity.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/host_device.hpp"
#include "core/tensor/cuda/stored.hpp"

namespace lockstep::ops::cuda {

using detail::cuda::store;
using detail::cuda::wide;

template <class T>
struct Largest {
  T value;
  std::int64_t index;  ///< the number of classes if there is none
};

template <class T>
LOCKSTEP_HOST_DEVICE Largest<detail::computed_t<T>> lane_largest(const T* x, std::int64_t classes, int lane,
                                                                 int lanes) {
  Largest<detail::computed_t<T>> largest{static_cast<detail::computed_t<T>>(-INFINITY), classes};
  for (std::int64_t j = lane; j < classes; j += lanes)
    if (wide(x[j]) > largest.value) largest = {wide(x[j]), j};
  return largest;
}

/// The same in either order, so lanes that join in different orders agree.
template <class T>
LOCKSTEP_HOST_DEVICE Largest<T> joined(Largest<T> a, Largest<T> b) {
  const bool second = b.value > a.value || (b.value == a.value && b.index < a.index);
  return second ? b : a;
}

/// The lane's part of the sum of e^(x[j] - max). Each term is at most 1, so no logit overflows.
template <class T>
LOCKSTEP_HOST_DEVICE detail::computed_t<T> lane_sum(const T* x, std::int64_t classes, int lane, int lanes,
                                                    detail::computed_t<T> max) {
  detail::computed_t<T> sum = 0;
  for (std::int64_t j = lane; j < classes; j += lanes) sum += std::exp(wide(x[j]) - max);
  return sum;
}

template <class T>
LOCKSTEP_HOST_DEVICE double row_loss(T sum, T max, T at_label) {
  return std::log(static_cast<double>(sum)) - (static_cast<double>(at_label) - static_cast<double>(max));
}

/// A row whose loss is NaN is not correct, whatever its largest logit is.
LOCKSTEP_HOST_DEVICE inline bool is_correct(std::int64_t largest, std::int64_t label, double loss) {
  return largest == label && loss == loss;
}

/// The lane's part of the loss's gradient: softmax minus one-hot. d may be x: each element is read before it is
/// written, and by no other lane.
template <class T>
LOCKSTEP_HOST_DEVICE void lane_gradient(const T* x, std::int64_t classes, std::int64_t label, int lane, int lanes,
                                        detail::computed_t<T> max, detail::computed_t<T> sum, T* d) {
  for (std::int64_t j = lane; j < classes; j += lanes) {
    const detail::computed_t<T> softmax = std::exp(wide(x[j]) - max) / sum;
    store(d[j], j == label ? softmax - 1 : softmax);
  }
}

}  // namespace lockstep::ops::cuda
