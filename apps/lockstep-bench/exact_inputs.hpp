// Inputs whose sum over the ranks is exact, so every order of summation must give the same.
#pragma once

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::bench {

/// Writes the input of rank `rank`: whole numbers from -2048 to 2047, pseudo-random by rank and index, and the same at
/// an index for tensors of any length. Floats hold every whole number up to 2^24, so every partial sum over up to 8192
/// ranks is exact. f32 and f64, on the host.
void fill_input(const TensorView& tensor, int rank);

/// Writes the sum of the inputs of `ranks` ranks.
void fill_sum(const TensorView& tensor, int ranks);

/// The largest absolute difference between elements at the same index; infinite if a difference is NaN. The tensors
/// must have the same type and length.
double largest_difference(const TensorView& result, const TensorView& expected);

}  // namespace lockstep::bench
