// The tensors of a batch, whatever it is made of.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>

#include <lockstep/core/values/nest.hpp>
#include <lockstep/tf/feed/batch_outline.hpp>

namespace lockstep::detail {

/// Calls `visit`, in order, with each tensor of `value` that a batch without samples also has. Skips slices.
template <class Value, class Visit>
void visit_tensors(Value& value, const Visit& visit) {
  using T = std::remove_const_t<Value>;
  if constexpr (std::same_as<T, Tensor>) {
    visit(value);
  } else if constexpr (needs_outline<T>() && !std::same_as<T, IndexedSlices>) {
    for_each_part(value, [&](auto& part) { visit_tensors(part, visit); });
  }
}

/// "f32[32, 784], i32[32]"; nothing if there are no tensors.
template <class Value>
std::string describe_tensors(const Value& value) {
  std::string text;
  visit_tensors(value, [&](const Tensor& tensor) { text += (text.empty() ? "" : ", ") + describe(tensor.view()); });
  return text;
}

}  // namespace lockstep::detail
