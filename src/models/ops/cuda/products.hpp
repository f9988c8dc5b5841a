// Matrix products by cuBLASLt, in full f32 and f64. Operands may be bf16: these are added up in f32.
//
// The bits of a product depend on the algorithm that the library picks. The pick must therefore depend on the operation
// alone: its type, its shape and what is fused with it. It is made once for each operation and kept. The library sees
// operands of one alignment only. Ways to split a sum among blocks whose order depends on which block is first are
// excluded, and those that round parts of a sum to bf16.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/device/device.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/cuda/column_major.hpp"
#include "models/ops/cuda/cublas.hpp"

namespace lockstep::ops::cuda {

/// What the library applies to a product before writing it.
enum class Epilogue : std::uint8_t { none, bias, bias_relu };

/// A product and the memory of its operands.
struct ProductCall {
  MatmulSizes sizes;
  Kernels::Matrix a;
  Kernels::Transpose transpose_a = Kernels::Transpose::no;
  Kernels::Matrix b;
  Kernels::Transpose transpose_b = Kernels::Transpose::no;
  Kernels::Matrix c;
  TensorView bias;  ///< for c's columns; not read if the epilogue adds none
};

/// The types of a product: f32 or f64 for both, or bf16 for the operands and bf16 or f32 for the result.
struct ProductTypes {
  DType operands;
  DType result;
};

/// `count` products c = scale * op(a) · op(b) of matrices that lie in larger ones. `a`, `b` and `c` are the first of
/// each.
struct BatchCall {
  ProductTypes types;
  MatmulSizes sizes;
  std::int64_t count;
  double scale;
  const void* a;
  Kernels::Transpose transpose_a;
  const void* b;
  Kernels::Transpose transpose_b;
  void* c;
  Strides row_strides;
  /// Between matrices. The first of each begins at a multiple of this from an address that operand_alignment divides.
  Strides strides;
};

/// Enqueues on one stream, which must outlive it. Threads may share it.
class Products {
 public:
  explicit Products(Stream& stream);

  /// c = op(a) · op(b), then `epilogue`, if the library can do that. Otherwise does nothing and returns false, always
  /// the same for the same operation. Without an epilogue it can; DeviceError if the library says otherwise. Extents
  /// must be positive. With an epilogue c is f32 or f64, and the bias of its type.
  ///
  /// The first call for a shape asks the library for its algorithms. With bias_relu this blocks the host: the library
  /// does not say whether its ReLU lets NaN through, so the algorithm is tried out, and rejected if it hides a NaN.
  bool multiply(const ProductCall& call, Epilogue epilogue) const;

  /// The algorithm depends on everything in the call except the operands' addresses. A product has the same bits at any
  /// position in the batch. Extents must be positive. DeviceError if the library has no algorithm.
  void multiply(const BatchCall& call) const;

 private:
  struct Key {
    MatmulSizes sizes;
    Kernels::Transpose transpose_a;
    Kernels::Transpose transpose_b;
    ProductTypes types;
    Epilogue epilogue;
    Strides row_strides;
    std::int64_t count = 1;
    Strides strides = {};

    bool operator<(const Key& other) const;
  };

  /// An operation that the library can do, and how.
  struct Plan {
    DType sums;  ///< their type
    Operation operation;
    Layout first;
    Layout second;
    Layout result;
    cublasLtMatmulAlgo_t algorithm;
  };

  /// In the library's order: `first` is b.
  struct Operands {
    const void* first;
    const void* second;
    const void* bias = nullptr;  ///< if the epilogue adds one
    void* result;
    double scale = 1;
  };

  const std::optional<Plan>& plan_of(const Key& key) const;
  std::optional<Plan> make_plan(const Key& key) const;
  bool lets_nan_through(const Key& key, const Plan& plan) const;
  void run(const Plan& plan, const Operands& operands) const;

  Stream& stream_;
  LibraryHandle library_;
  Buffer workspace_;
  /// Held from the lookup of a plan to the last kernel of its product: some products are two kernels that share the
  /// workspace, and the pointer to the bias is part of the plan.
  mutable std::mutex mutex_;
  mutable std::map<Key, std::optional<Plan>> plans_;
};

/// "13.1.0".
std::string library_version();

}  // namespace lockstep::ops::cuda
