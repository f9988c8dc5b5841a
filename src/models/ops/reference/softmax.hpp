// Softmax cross-entropy of one row, for float and double.
#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep::ops::loops {

/// One row's part of the result, and what its gradient needs.
template <class T>
struct RowEntropy {
  double loss;
  bool correct;
  T sum;
};

/// exps[j] = e^(x[j] - max x), at most 1, so that no logit overflows. `sum` is their sum. exps may be x.
template <class Functions, class T>
RowEntropy<T> row_entropy(const T* x, std::int64_t classes, std::int32_t label, T* exps) {
  std::int64_t largest = 0;
  for (std::int64_t j = 1; j < classes; ++j)
    if (x[j] > x[largest]) largest = j;
  const T max = x[largest];
  const T at_label = x[label];

  T sum = 0;
  for (std::int64_t j = 0; j < classes; ++j) {
    exps[j] = Functions::exp(x[j] - max);
    sum += exps[j];
  }
  const double loss =
      Functions::log(static_cast<double>(sum)) - (static_cast<double>(at_label) - static_cast<double>(max));
  return {loss, largest == label && !std::isnan(loss), sum};
}

/// Turns the row's exponentials into the gradient of its loss: softmax minus one-hot.
template <class T>
void row_gradient(T* exps, std::int64_t classes, std::int32_t label, T sum) {
  for (std::int64_t j = 0; j < classes; ++j) exps[j] /= sum;
  exps[label] -= T{1};
}

}  // namespace lockstep::ops::loops
