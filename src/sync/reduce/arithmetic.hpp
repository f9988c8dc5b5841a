// The few element-wise operations of reductions, on host and GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// How pieces are added up: in the order of fixed_order_sum or of another tree, and then divided, or exactly
/// (exact_block.hpp).
struct SumRule {
  bool is_exact = false;
  int divisor = 1;  ///< 1 for integers and exact sums
  /// Shares::additions of another tree; not for exact sums.
  std::span<const std::uint8_t> additions = {};
};

/// Pieces of one shape and type. From the beginning of one to the next are `stride` elements.
struct Pieces {
  TensorView first;
  std::int64_t stride;
  int count;
};

/// The same in host memory, without what it costs to make a view. Strides are in bytes.
struct HostPieces {
  std::byte* first;
  std::int64_t stride;
  int count;
  /// Where each begins, in bytes behind `first`, if that is not at equal strides. Exact sums need equal strides.
  std::span<const std::int64_t> offsets = {};
};

/// sum = the pieces of `elements` elements, as the other tree_sum. `sum` overlaps none.
void tree_sum(const HostPieces& pieces, DType dtype, std::int64_t elements, const SumRule& rule, std::byte* sum);

/// Writes the sum of all pieces to the places [first, last) of those at equal strides, also if `offsets` say that the
/// pieces begin elsewhere.
void tree_sum_in_place(const HostPieces& pieces, DType dtype, std::int64_t elements, const SumRule& rule, int first,
                       int last);

/// All of these enqueue their work on `stream` and take memory of its device. For f16 and bf16 they compute in f32 and
/// round once.

/// sum = the pieces, added up by `rule`, which is not exact on a GPU. `sum` has the shape and type of a piece and
/// overlaps none.
void tree_sum(const Pieces& pieces, const SumRule& rule, const TensorView& sum, Stream& stream);

/// sum += x. Same count and type.
LOCKSTEP_PARTS_API void add(const TensorView& sum, const TensorView& x, Stream& stream);

/// view /= divisor. Floating-point types.
void divide(const TensorView& view, int divisor, Stream& stream);

}  // namespace lockstep::detail
