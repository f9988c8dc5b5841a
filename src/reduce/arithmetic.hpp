// The few operations on elements that reductions are made of, on memory of the host and of GPUs.
#pragma once

#include <cstdint>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

/// Pieces of one shape and type, `stride` elements from the begin of one to that of the next.
struct Pieces {
  TensorView first;
  std::int64_t stride;
  int count;
};

/// All of these enqueue on `stream` what they do, and take memory of its device. What they compute for f16 and bf16
/// they compute in f32, and round once.

/// sum = the pieces added up in the order of fixed_order_sum, divided by `divisor`, which is 1 for integers. `sum` is
/// of the shape and type of a piece, and overlaps none.
void tree_sum(const Pieces& pieces, int divisor, const TensorView& sum, Stream& stream);

/// sum += x. Same count and type.
void add(const TensorView& sum, const TensorView& x, Stream& stream);

/// view /= divisor. Floating-point types.
void divide(const TensorView& view, int divisor, Stream& stream);

}  // namespace lockstep::detail
