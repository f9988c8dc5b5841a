// The outline of a batch: its structure without its samples. For each tensor it holds the element type, the device and
// all extents except the first. A rank that has a batch sends the outline, as numbers, to the ranks that have none.
//
//   const std::vector<std::int64_t> outline = outline_of(batch);  // a std::pair of f32[32, 784] and i64[32]
//   take_outline(blank, outline, stream);                         // f32[0, 784] and i64[0]
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/leaves.hpp>

namespace lockstep::detail {

/// Whether values of the type have an outline. Without one, a batch without samples is blank. A vector of tensors is a
/// list and keeps its length; any other vector holds the samples themselves and becomes empty, and so does one of parts
/// that cannot be made blank. Maps have an outline if their keys are integers, enums or strings; others become empty.
bool has_outline(const Description& type);

std::vector<std::int64_t> outline_of(const Description& type, const void* batch);

/// Turns the blank `batch` into one without samples, otherwise like the outlined one. MismatchError if the outline
/// describes another type. `stream` is that of this rank's device.
void take_outline(const Description& type, void* batch, std::span<const std::int64_t> outline, Stream& stream);

/// Calls `visit`, in order, with each tensor of the value that a batch without samples also has. Skips slices.
void visit_tensors(const Description& type, const void* value, const std::function<void(Tensor&)>& visit);

/// "f32[32, 784], i32[32]"; nothing if there are no tensors.
std::string describe_tensors(const Description& type, const void* value);

}  // namespace lockstep::detail
