// The loops over plain memory, for float and double, written so that the compiler vectorises them: pointers that do not
// overlap say so.
#pragma once

#include <cstdint>

#include "sync/update/update_rules.hpp"

namespace lockstep::detail::loops {

template <class T>
void sgd(T* __restrict values, const T* __restrict gradient, const StepScalars<T>& step, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) apply_sgd(values[i], gradient[i], step);
}

template <class T>
void momentum(T* __restrict values, const T* __restrict gradient, T* __restrict velocity, const StepScalars<T>& step,
              T momentum, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) apply_momentum(values[i], gradient[i], velocity[i], step, momentum);
}

template <class T>
void adamw(T* __restrict values, const T* __restrict gradient, T* __restrict first, T* __restrict second,
           const StepScalars<T>& step, const AdamWScalars<T>& adam, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) apply_adamw(values[i], gradient[i], first[i], second[i], step, adam);
}

template <class T>
void add(T* __restrict sums, const T* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sums[i] += x[i];
}

/// sums += x^2, in double.
template <class T>
void add_squares(double* __restrict sums, const T* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
}

}  // namespace lockstep::detail::loops
