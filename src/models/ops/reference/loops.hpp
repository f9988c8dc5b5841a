// The loops over plain memory, for float and double. Element-wise ones are written so that the compiler vectorises
// them: pointers that do not overlap say so, and a choice is between two values, never between two paths.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::ops::loops {

/// The transpose of `from` [rows, columns], whose rows begin `stride` elements apart, in new memory.
template <class T>
std::vector<T> transposed(const T* from, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  std::vector<T> to(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      to[static_cast<std::size_t>(column * rows + row)] = from[row * stride + column];
  return to;
}

/// y += factor * x, over n elements.
template <class T>
void add_scaled(T* __restrict y, T factor, const T* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

/// c [m, n] = a · b [k, n], where element (i, l) of a is a[i * a_row + l * a_column], and the rows of b and c begin
/// b_row and c_row elements apart.
///
/// Every element of c adds its k products in ascending order, starting from zero, whatever m and n are and wherever the
/// operands lie. A row of c therefore has the same bits in every batch.
template <class T>
void matmul(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t a_row, std::int64_t a_column,
            const T* b, std::int64_t b_row, T* c, std::int64_t c_row) {
  for (std::int64_t i = 0; i < m; ++i) {
    std::fill_n(c + i * c_row, n, T{0});
    for (std::int64_t l = 0; l < k; ++l) add_scaled(c + i * c_row, a[i * a_row + l * a_column], b + l * b_row, n);
  }
}

template <class T>
void add(T* __restrict sum, const T* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

// Written as `x < 0 ? 0 : x` and `y <= 0 ? 0 : dy`, these let NaN through.

template <class T>
void relu(const T* x, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] < T{0} ? T{0} : x[i];
}

template <class T>
void relu_gradient(const T* y, const T* dy, T* dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T gradient = dy[i];
    dx[i] = y[i] <= T{0} ? T{0} : gradient;
  }
}

}  // namespace lockstep::ops::loops
