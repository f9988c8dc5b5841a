// The memory of a call of cublasLtMatmul, and what is checked of it when the call is made.
#pragma once

#include <cstddef>
#include <vector>

#include "cublaslt/algorithms.hpp"
#include "cublaslt/product.hpp"

namespace cusim::cublaslt {

struct Operands {
  const std::byte* a;
  const std::byte* b;
  const std::byte* c;  ///< null if beta is zero: then it is not read
  std::byte* d;
  const std::byte* bias;  ///< null if the product adds none
  std::byte* workspace;
  std::size_t workspace_bytes;
};

/// Bytes without a gap.
struct Run {
  const std::byte* begin;
  std::size_t bytes;
};

/// The columns (row-major: the rows) of all matrices of the batch, in the order of addresses within a matrix. Those
/// that touch are one run.
std::vector<Run> runs_of(const Matrix& matrix, std::size_t batch, const std::byte* address);

/// The biases of all products of the batch.
std::vector<Run> bias_runs(const Product& product, const std::byte* bias);

/// Ends the process (`found`) unless all memory is allocated on the current device and large enough, addresses are as
/// aligned as was promised for the algorithm, and what the product writes overlaps nothing else. C may be D.
void check_operands(const Product& product, const Operands& operands, const Algorithm& algorithm);

}  // namespace cusim::cublaslt
