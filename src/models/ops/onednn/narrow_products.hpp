// Matrix products of bf16 by oneDNN.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops {

/// Whether the processor has instructions for products of bf16, as AVX512_BF16 and AMX are.
bool has_narrow_products();

/// The shape of c = scale * op(a) · op(b) + bias. Rows of a, b and c begin `stride` elements apart.
struct NarrowProduct {
  std::int64_t m, n, k;
  std::int64_t a_stride;
  Kernels::Transpose transpose_a;
  std::int64_t b_stride;
  Kernels::Transpose transpose_b;
  std::int64_t c_stride;
  DType result;  ///< bf16 or f32
  float scale = 1;
  bool has_bias = false;

  auto operator<=>(const NarrowProduct&) const = default;
};

/// For has_narrow_products and positive extents. Threads may call it at the same time. DeviceError if the library
/// fails.
class NarrowProducts {
 public:
  explicit NarrowProducts(Kernels::Threads threads);
  NarrowProducts(const NarrowProducts&) = delete;
  NarrowProducts& operator=(const NarrowProducts&) = delete;
  ~NarrowProducts();

  /// Overwrites c, adding up in f32 and rounding once. `bias` [n] is not read unless the product has one.
  void multiply(const NarrowProduct& product, const BFloat16* a, const BFloat16* b, const float* bias, void* c) const;

 private:
  class Kept;

  Kernels::Threads threads_;
  std::unique_ptr<Kept> kept_;
};

}  // namespace lockstep::ops
