// Sums of products in the orders that kernels make them in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cusim::cublaslt {

enum class Sums : std::uint8_t {
  straight,  ///< one product after another
  blocks,    ///< of eight products each, then of those
  pairs,     ///< halves of halves
  lanes,     ///< four interleaved ones, then of those
};

/// For i < rows: sums[i] = Σ a[l * stride + i] · b[l] over l < count, which is at least 1.
void sum(Sums order, const float* a, std::size_t stride, std::size_t rows, const float* b, std::size_t count,
         float* sums);
void sum(Sums order, const double* a, std::size_t stride, std::size_t rows, const double* b, std::size_t count,
         double* sums);

}  // namespace cusim::cublaslt
