// Calls of cuBLASLt, for the checks of cusim's.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>
#include <cublasLt.h>

namespace cusim::test {

inline void check(cublasStatus_t status) {
  REQUIRE(status == CUBLAS_STATUS_SUCCESS);
}
inline void check(cudaError_t error) {
  REQUIRE(error == cudaSuccess);
}

/// GPU memory with a copy of the host's values.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(std::size_t count) : count_{count} {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  explicit OnGpu(const std::vector<T>& values) : OnGpu{values.size()} {
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() { (void)cudaFree(data_); }

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

template <class T>
struct Types {};
template <>
struct Types<float> {
  static constexpr cudaDataType stored = CUDA_R_32F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  using Factor = float;
};
template <>
struct Types<double> {
  static constexpr cudaDataType stored = CUDA_R_64F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
  using Factor = double;
};
template <>
struct Types<std::uint16_t> {  // bf16
  static constexpr cudaDataType stored = CUDA_R_16BF;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  using Factor = float;
};

inline double number(float stored) {
  return stored;
}
inline double number(double stored) {
  return stored;
}
inline double number(std::uint16_t stored) {
  const std::uint32_t word = std::uint32_t{stored} << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// What bf16 can hold.
inline double small_number(std::size_t at) {
  return static_cast<double>(at * 7 % 11) - 5;
}

template <class T>
T stored(double value) {
  if constexpr (std::is_same_v<T, std::uint16_t>) {
    const auto single = static_cast<float>(value);
    std::uint32_t word = 0;
    std::memcpy(&word, &single, sizeof word);
    return static_cast<std::uint16_t>(word >> 16);
  } else {
    return static_cast<T>(value);
  }
}

/// The product of a test: sizes, and what differs from the plainest.
struct Case {
  std::size_t m = 4;
  std::size_t n = 5;
  std::size_t k = 6;
  bool transpose_a = false;
  bool transpose_b = false;
  std::size_t gap = 0;  ///< elements between the columns of each matrix
  std::size_t batch = 1;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint64_t workspace = 1 << 16;
  std::uint32_t alignment = 16;
};

struct Shape {
  std::size_t rows;
  std::size_t columns;
  std::size_t leading;
  std::size_t stride;
  bool row_major;

  std::size_t at(std::size_t item, std::size_t row, std::size_t column) const {
    return item * stride + (row_major ? row * leading + column : column * leading + row);
  }
  std::size_t elements(std::size_t batch) const { return batch * stride; }
};

inline Shape shape(const Case& of, std::size_t rows, std::size_t columns) {
  const bool row_major = of.order == CUBLASLT_ORDER_ROW;
  const std::size_t leading = (row_major ? columns : rows) + of.gap;
  return {rows, columns, leading, leading * (row_major ? rows : columns) + 2 * of.gap, row_major};
}

/// Descriptors for a case, and calls with them.
template <class T>
class Matmul {
 public:
  using Factor = typename Types<T>::Factor;

  explicit Matmul(const Case& of)
      : of_{of},
        a{of.transpose_a ? shape(of, of.k, of.m) : shape(of, of.m, of.k)},
        b{of.transpose_b ? shape(of, of.n, of.k) : shape(of, of.k, of.n)},
        d{shape(of, of.m, of.n)},
        workspace{of.workspace} {
    check(cublasLtCreate(&library));
    check(cublasLtMatmulDescCreate(&description, Types<T>::compute, sizeof(Factor) == 8 ? CUDA_R_64F : CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, of.epilogue);
    a_layout = layout(a);
    b_layout = layout(b);
    d_layout = layout(d);
    check(cublasLtMatmulPreferenceCreate(&preference));
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, of.workspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, of.schemes);
    for (const auto each : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(each, of.alignment);
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;
  ~Matmul() {
    (void)cublasLtMatmulPreferenceDestroy(preference);
    for (const auto each : {a_layout, b_layout, d_layout}) (void)cublasLtMatrixLayoutDestroy(each);
    (void)cublasLtMatmulDescDestroy(description);
    (void)cublasLtDestroy(library);
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
  }
  template <class Value>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  }

  cublasStatus_t ask(std::vector<cublasLtMatmulHeuristicResult_t>& results) {
    results.resize(64);
    int count = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(library, description, a_layout, b_layout, d_layout, d_layout,
                                                       preference, 64, results.data(), &count);
    results.resize(static_cast<std::size_t>(count));
    std::erase_if(results, [](const auto& each) { return each.state != CUBLAS_STATUS_SUCCESS; });
    return status;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> algorithms() {
    std::vector<cublasLtMatmulHeuristicResult_t> results;
    check(ask(results));
    REQUIRE(!results.empty());
    return results;
  }

  cublasStatus_t run(const T* from_a, const T* from_b, const T* from_c, T* to, const cublasLtMatmulAlgo_t* algorithm,
                     Factor alpha = 1, Factor beta = 0, cudaStream_t stream = nullptr) {
    return cublasLtMatmul(library, description, &alpha, from_a, a_layout, from_b, b_layout, &beta, from_c, d_layout, to,
                          d_layout, algorithm, workspace.data(), of_.workspace, stream);
  }

 private:
  cublasLtMatrixLayout_t layout(const Shape& shape) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, Types<T>::stored, shape.rows, shape.columns,
                                     static_cast<std::int64_t>(shape.leading)));
    const auto put = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
      check(cublasLtMatrixLayoutSetAttribute(made, attribute, &value, sizeof value));
    };
    put(CUBLASLT_MATRIX_LAYOUT_ORDER, of_.order);
    if (of_.batch > 1) {
      put(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(of_.batch));
      put(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<std::int64_t>(shape.stride));
    }
    return made;
  }

  Case of_;

 public:
  Shape a;
  Shape b;
  Shape d;
  OnGpu<std::byte> workspace;
  cublasLtHandle_t library = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr;
  cublasLtMatrixLayout_t b_layout = nullptr;
  cublasLtMatrixLayout_t d_layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

template <class T>
std::vector<T> small_numbers(std::size_t count, std::size_t from = 0) {
  std::vector<T> numbers(count);
  for (std::size_t at = 0; at < count; ++at) numbers[at] = stored<T>(small_number(at + from));
  return numbers;
}

template <class T>
struct Call {
  explicit Call(const Case& of)
      : matmul{of},
        a{small_numbers<T>(matmul.a.elements(of.batch))},
        b{small_numbers<T>(matmul.b.elements(of.batch))},
        d{matmul.d.elements(of.batch)},
        algorithm{matmul.algorithms().front().algo} {}

  cublasStatus_t run() { return matmul.run(a.data(), b.data(), d.data(), d.data(), &algorithm); }

  Matmul<T> matmul;
  OnGpu<T> a;
  OnGpu<T> b;
  OnGpu<T> d;
  cublasLtMatmulAlgo_t algorithm;
};

/// Fractions whose sums depend on the order.
template <class T>
std::vector<T> fractions(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t at = 0; at < count; ++at) values[at] = static_cast<T>(std::sin(static_cast<double>(at) + 1));
  return values;
}

}  // namespace cusim::test
