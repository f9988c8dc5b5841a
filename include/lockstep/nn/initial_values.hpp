// Where the values of a model's variables begin.
#pragma once

#include <cstdint>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

/// Normal initial values of mean 0. Element i is
///     stddev * sqrt(-2 ln u) * cos(2 pi v)   (Box, Muller: "A note on the generation of random normal deviates", 1958)
/// where RandomStream{seed, initial_value, ordinal}.bits(i) = b gives u = (b / 2^32 + 1) / 2^32, rounded down before
/// the 1 is added, and v = (b mod 2^32) / 2^32. Computed in double: f32 values are the f64 ones, rounded.
/// InvalidArgument unless `dtype` is f32 or f64 and `stddev` is finite and not negative.
Tensor normal_values(DType dtype, Shape shape, double stddev, std::uint64_t seed, std::uint64_t ordinal);

}  // namespace lockstep::nn
