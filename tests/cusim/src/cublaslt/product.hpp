// What a call of cuBLASLt computes, read from its descriptors and checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cublaslt/objects.hpp"

namespace cusim::cublaslt {

struct Matrix {
  cudaDataType type;
  bool row_major;
  std::size_t rows;
  std::size_t columns;
  std::size_t leading;
  std::size_t batch_stride;

  /// A matrix is stored as runs without gaps: its columns, or its rows if it is row-major.
  std::size_t runs() const { return row_major ? rows : columns; }
  std::size_t run_length() const { return row_major ? columns : rows; }
};

enum class Activation : std::uint8_t { none, relu, gelu };

/// D = activation(alpha · op(A) · op(B) + beta · C + bias), `batch` times.
struct Product {
  std::size_t m;
  std::size_t n;
  std::size_t k;
  std::size_t batch;
  Matrix a;
  Matrix b;
  Matrix c;
  Matrix d;
  bool transpose_a;
  bool transpose_b;
  cublasComputeType_t compute;
  bool adds_bias;
  Activation activation;
  std::size_t bias_batch_stride;
};

std::size_t bytes_of(cudaDataType type);

/// Whether sums are made in f64; else they are made in f32.
bool in_f64(const Product& product);

/// Writes `product`. INVALID_VALUE for descriptors that contradict each other, NOT_SUPPORTED for what the library has
/// no kernel for. As cuBLASLt does, takes an epilogue without the address of a bias for one that adds none.
cublasStatus_t read_product(const Description& description, const Layout& a, const Layout& b, const Layout& c,
                            const Layout& d, Product& product);

/// A number that differs for operations that differ in more than their addresses.
std::uint64_t key_of(const Product& product);

}  // namespace cusim::cublaslt
