// Initial values of weights.
#pragma once

#include <cstdint>

#include <lockstep/core/tensor/tensor.hpp>

#include "models/ops/functions.hpp"

namespace lockstep::nn {

/// Glorot's uniform initial values, for a weight [inputs, outputs], or [..., inputs, outputs] of a convolution, whose
/// kernel covers as many positions as the product of the leading extents. They lie in [-limit, limit) with limit =
/// sqrt(6 / (positions * (inputs + outputs))) (Glorot, Bengio: "Understanding the difficulty of training deep
/// feedforward neural networks", 2010). A pure function of `seed`, `ordinal` and the element's index, computed in
/// double; f32 values are the f64 ones, rounded. In host memory. InvalidArgument unless `dtype` is f32 or f64 and
/// `shape` has two dimensions or more.
Tensor glorot_uniform(DType dtype, const Shape& shape, std::uint64_t seed, std::uint64_t ordinal);
Tensor glorot_uniform(DType dtype, std::int64_t inputs, std::int64_t outputs, std::uint64_t seed,
                      std::uint64_t ordinal);

/// Normal initial values with mean 0. Element i is
///     stddev * sqrt(-2 ln u) * cos(2 pi v)   (Box, Muller: "A note on the generation of random normal deviates", 1958)
/// where RandomStream{seed, initial_value, ordinal}.bits(i) = b gives u = (floor(b / 2^32) + 1) / 2^32 and v = (b mod
/// 2^32) / 2^32. ln and cos are the C library's or portable. Computed in double; f32 values are the f64 ones, rounded.
/// In host memory. InvalidArgument unless `dtype` is f32 or f64 and `stddev` is finite and not negative.
Tensor normal_values(DType dtype, const Shape& shape, double stddev, std::uint64_t seed, std::uint64_t ordinal,
                     ops::Functions functions = ops::Functions::of_library);

}  // namespace lockstep::nn
