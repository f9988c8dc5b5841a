// The operations of sync/reduce/arithmetic.hpp on GPU memory.
#pragma once

#include "sync/reduce/arithmetic.hpp"

namespace lockstep::detail::cuda {

void tree_sum(const Pieces& pieces, int divisor, const TensorView& sum, Stream& stream);
void add(const TensorView& sum, const TensorView& x, Stream& stream);
void divide(const TensorView& view, int divisor, Stream& stream);

}  // namespace lockstep::detail::cuda
