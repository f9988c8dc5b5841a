// The fixed tree over parts that are all there.
#pragma once

#include <lockstep/sync/reduce/fixed_order.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// LOCAL. Sums the `parts` equal, consecutive pieces of `pieces` into `sum`, element by element, bracketed as
///   tree(0, n) = tree(0, m) + tree(m, n), where m is the largest power of two below n.
/// A rank may therefore sum an aligned run of 2^k pieces itself and pass on the result as one piece, without changing a
/// bit. The exceptions are f16 and bf16: their tree is computed in f32 and rounded once at the end, to nearest even.
///
/// `sum` has the length of one piece and may not overlap `pieces`; InvalidArgument if lengths or types do not fit.
/// Integers wrap around. The work is enqueued on `stream`, on memory of its device. Except for NaNs, the bits are the
/// same on every kind of device.
LOCKSTEP_PARTS_API void fixed_order_sum(const TensorView& pieces, int parts, const TensorView& sum,
                                        Stream& stream = Stream::host());

}  // namespace lockstep
