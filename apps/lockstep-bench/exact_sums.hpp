// Inputs whose sum over the ranks is exact, so that every order of summation must give the same.
#pragma once

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::bench {

/// Writes what rank `rank` brings: whole numbers from -2048 to 2047, different for each rank and each element but for
/// chance, and the same at an index whatever the length of the tensor. Floats hold every whole number up to 2^24, so
/// every partial sum over up to 8192 ranks is exact. f32 and f64, on the host.
void fill_input(const TensorView& tensor, int rank);

/// Writes the sum of what `ranks` ranks bring.
void fill_sum(const TensorView& tensor, int ranks);

/// The largest absolute difference between two elements at the same index; infinite where one is no number. The
/// tensors have the same type and length.
double largest_difference(const TensorView& result, const TensorView& expected);

}  // namespace lockstep::bench
