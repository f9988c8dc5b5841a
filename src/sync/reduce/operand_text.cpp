#include "sync/reduce/operand_text.hpp"

#include <cstddef>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep {
namespace {

std::string_view place_of(DeviceKind device) {
  return device == DeviceKind::cpu ? "" : " on a GPU";
}

/// "f32[…, 2]"
std::string text_of_rows(const Tensor& rows) {
  std::string extents = "…";
  for (std::size_t i = 1; i < rows.shape().size(); ++i) extents += fmt::format(", {}", rows.shape()[i]);
  return fmt::format("{}[{}]", name_of(rows.dtype()), extents);
}

}  // namespace

std::string operand_text(const TensorView& tensor) {
  return fmt::format("{}{}", describe(tensor), place_of(tensor.device()));
}

std::string operand_text(const IndexedSlices& slices) {
  return fmt::format("slices {} of {}{}", text_of_rows(slices.values), describe(slices.dense_shape),
                     place_of(slices.values.device()));
}

std::string rows_text(std::span<const Tensor> tensors) {
  std::vector<std::string> texts;
  for (const Tensor& tensor : tensors) texts.push_back(text_of_rows(tensor) + std::string{place_of(tensor.device())});
  return fmt::format("{}", fmt::join(texts, ", "));
}

void require_here(const TensorView& tensor, const Stream& stream) {
  if (tensor.device() != DeviceKind::cpu && tensor.device() != stream.kind())
    throw InvalidArgument{fmt::format("{} is on a GPU, and this rank owns none: expected a tensor in the host's memory",
                                      describe(tensor))};
}

}  // namespace lockstep
