// From one floating-point type to another.
#pragma once

#include <cstdint>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// Exact.
LOCKSTEP_PARTS_API void widen(const BFloat16* from, float* to, std::int64_t count);

/// Rounds to nearest, ties to even, as BFloat16 does.
LOCKSTEP_PARTS_API void round(const float* from, BFloat16* to, std::int64_t count);

/// LOCAL. Each element of `from` as the type of `to`, rounded as above: f32 to f16 or bf16, or back. InvalidArgument
/// for other types, another number of elements, and memory of a GPU.
LOCKSTEP_PARTS_API void convert(const TensorView& from, const TensorView& to);

/// The same in memory of the stream's device. On a GPU it is enqueued, for f32 and bf16 alone.
void convert(const TensorView& from, const TensorView& to, Stream& stream);

}  // namespace lockstep::detail
