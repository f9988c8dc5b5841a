// How agreements describe what is reduced. Host and GPU tensors travel on different planes, so the texts tell them
// apart: ranks that disagree on the plane would wait for each other for ever.
#pragma once

#include <span>
#include <string>

#include <lockstep/core/device/stream.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/values.hpp>

namespace lockstep {

/// "f32[3, 2]", "f32[3, 2] on a GPU".
std::string operand_text(const TensorView& tensor);
inline std::string operand_text(const Tensor& tensor) {
  return operand_text(tensor.view());
}

/// "slices f32[…, 2] of [10, 2]": the number of rows may differ by rank.
std::string operand_text(const IndexedSlices& slices);

/// "f32[…, 2], i64[…]": tensors whose first extent may differ by rank.
std::string rows_text(std::span<const Tensor> tensors);

/// InvalidArgument unless `tensor` is in the host's memory or in that of the stream's device.
void require_here(const TensorView& tensor, const Stream& stream);

}  // namespace lockstep
