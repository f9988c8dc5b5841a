// Products of row-major matrices, expressed for cuBLAS, whose matrices are column-major.
#pragma once

#include <cstdint>

#include "models/ops/checks.hpp"

namespace lockstep::ops::cuda {

/// A column-major matrix: element (i, j) lies at i + j * leading.
struct ColumnMajor {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t leading;
};

/// For each matrix of a product, how many elements lie between the beginnings of two adjacent rows, or of two adjacent
/// matrices.
struct Strides {
  std::int64_t a;
  std::int64_t b;
  std::int64_t c;
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
                                          Kernels::Transpose transpose_b, const Strides& row_strides) {
  const auto transposed_rows = [](std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    return ColumnMajor{.rows = columns, .columns = rows, .leading = stride};
  };
  const auto [m, n, k] = sizes;
  return {
      .first = transpose_b == Kernels::Transpose::no ? transposed_rows(k, n, row_strides.b)
                                                     : transposed_rows(n, k, row_strides.b),
      .second = transpose_a == Kernels::Transpose::no ? transposed_rows(m, k, row_strides.a)
                                                      : transposed_rows(k, m, row_strides.a),
      .result = transposed_rows(m, n, row_strides.c),
      .transpose_first = transpose_b,
      .transpose_second = transpose_a,
  };
}

}  // namespace lockstep::ops::cuda
