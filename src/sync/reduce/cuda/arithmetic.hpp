// The operations of sync/reduce/arithmetic.hpp on GPU memory.
#pragma once

#include "sync/reduce/arithmetic.hpp"

namespace lockstep::detail::cuda {

/// InvalidArgument for the additions of more than 128 pieces.
void tree_sum(const Pieces& pieces, const SumRule& rule, const TensorView& sum, Stream& stream);
void add(const TensorView& sum, const TensorView& x, Stream& stream);
void divide(const TensorView& view, int divisor, Stream& stream);

}  // namespace lockstep::detail::cuda
