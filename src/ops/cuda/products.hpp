// Matrix products by cuBLASLt, in full f32 and f64.
//
// The bits of a product depend on the algorithm that the library picks. So the pick may depend on nothing but the
// operation: on its type, its shape and what is fused with it. It is made once for each and kept; the operands that the
// library gets to see are always aligned alike; and of the ways to split a sum among blocks, those whose order depends
// on which block is first are excluded.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "ops/checks.hpp"
#include "ops/cuda/column_major.hpp"
#include "ops/cuda/cublas.hpp"

namespace lockstep::ops::cuda {

/// What the library does to a product before it writes it.
enum class Epilogue : std::uint8_t { none, bias, bias_relu };

/// A product and the memory of its operands.
struct ProductCall {
  MatmulSizes sizes;
  TensorView a;
  Transpose transpose_a = Transpose::no;
  TensorView b;
  Transpose transpose_b = Transpose::no;
  TensorView c;
  TensorView bias;  ///< of c's columns; not read where the epilogue adds none
};

/// Enqueues on one stream, which must outlive it. Threads may share it.
class Products {
 public:
  explicit Products(Stream& stream);

  /// c = op(a) · op(b), then `epilogue`, if the library can. Otherwise nothing, and false: the same answer whenever the
  /// same is asked. It always can without an epilogue: DeviceError if it says otherwise. Extents are positive.
  ///
  /// The first call for a shape asks the library for its algorithms. Where that is with bias_relu, it blocks the host:
  /// the library does not say whether its ReLU lets a NaN through, so that each algorithm is tried out, and one that
  /// hides a NaN is none.
  bool multiply(const ProductCall& call, Epilogue epilogue) const;

 private:
  struct Key {
    MatmulSizes sizes;
    Transpose transpose_a;
    Transpose transpose_b;
    DType dtype;
    Epilogue epilogue;

    bool operator<(const Key& other) const;
  };

  /// An operation that the library can do, and how.
  struct Plan {
    DType dtype;
    Operation operation;
    Layout first;
    Layout second;
    Layout result;
    cublasLtMatmulAlgo_t algorithm;
  };

  const std::optional<Plan>& plan_of(const Key& key) const;
  std::optional<Plan> make_plan(const Key& key) const;
  bool lets_nan_through(const Key& key, const Plan& plan) const;
  void run(const Plan& plan, const void* first, const void* second, const void* bias, void* result) const;

  Stream& stream_;
  LibraryHandle library_;
  Buffer workspace_;
  /// Held from the look at the plans to the last kernel of a product: some are two kernels that share the workspace,
  /// and the pointer to the bias is part of the plan.
  mutable std::mutex mutex_;
  mutable std::map<Key, std::optional<Plan>> plans_;
};

/// "13.1.0".
std::string library_version();

}  // namespace lockstep::ops::cuda
