// Products of row-major matrices, expressed for cuBLAS, whose matrices are column-major.
#pragma once

#include <cstdint>

#include "ops/checks.hpp"

namespace lockstep::ops::cuda {

/// A column-major matrix: element (i, j) lies at i + j * leading.
struct ColumnMajor {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t leading;
};

/// result [m, n] = op(first) [m, k] · op(second) [k, n].
struct ColumnMajorProduct {
  ColumnMajor first;
  ColumnMajor second;
  ColumnMajor result;
  Kernels::Transpose transpose_first;
  Kernels::Transpose transpose_second;
};

/// Memory that holds a matrix by rows holds its transpose by columns. So c = op(a) · op(b) is computed, without a copy,
/// as the transpose of c: the product of the transposes of b (`first`) and a (`second`), in this order. A row of c is a
/// column of `result`, so a bias of c's columns is a bias of the result's rows.
constexpr ColumnMajorProduct column_major(const MatmulSizes& sizes, Kernels::Transpose transpose_a,
                                          Kernels::Transpose transpose_b) {
  const auto transposed_rows = [](std::int64_t rows, std::int64_t columns) {
    return ColumnMajor{.rows = columns, .columns = rows, .leading = columns};
  };
  const auto [m, n, k] = sizes;
  return {
      .first = transpose_b == Kernels::Transpose::no ? transposed_rows(k, n) : transposed_rows(n, k),
      .second = transpose_a == Kernels::Transpose::no ? transposed_rows(m, k) : transposed_rows(k, m),
      .result = transposed_rows(m, n),
      .transpose_first = transpose_b,
      .transpose_second = transpose_a,
  };
}

}  // namespace lockstep::ops::cuda
