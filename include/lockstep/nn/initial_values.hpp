// What weights are before the first step.
#pragma once

#include <cstdint>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

/// InvalidArgument unless `dtype` is one that layers compute in: f32 or f64.
void require_weights(DType dtype);

/// Glorot's uniform initial values for a weight [inputs, outputs], or [..., inputs, outputs] of a convolution, whose
/// kernel covers as many positions as the product of the extents in front: in [-limit, limit) with limit =
/// sqrt(6 / (positions * (inputs + outputs))) (Glorot, Bengio: "Understanding the difficulty of training deep
/// feedforward neural networks", 2010). A pure function of `seed`, `ordinal` and the element's index, computed in
/// double: f32 values are the f64 ones, rounded. InvalidArgument unless `dtype` is f32 or f64 and `shape` is of two
/// dimensions or more.
Tensor glorot_uniform(DType dtype, const Shape& shape, std::uint64_t seed, std::uint64_t ordinal);
Tensor glorot_uniform(DType dtype, std::int64_t inputs, std::int64_t outputs, std::uint64_t seed,
                      std::uint64_t ordinal);

}  // namespace lockstep::nn
