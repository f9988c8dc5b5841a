#include "python/text.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::python {

bool is_like(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.sizes() == other.sizes() && tensor.scalar_type() == other.scalar_type();
}

std::string text_of(const at::Tensor& tensor) {
  return fmt::format("{}{}[{}]", tensor.layout() == at::kStrided ? "" : "sparse ", name_of(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

std::string text_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> texts(tensors.size());
  std::ranges::transform(tensors, texts.begin(), [](const at::Tensor& each) { return text_of(each); });
  return texts.empty() ? "nothing" : fmt::format("{}", fmt::join(texts, ", "));
}

std::string name_of(at::ScalarType type) {
  // In Python, others have the name that they have in C++.
  constexpr std::pair<at::ScalarType, std::string_view> names[] = {
      {at::kFloat, "float32"},
      {at::kDouble, "float64"},
      {at::kHalf, "float16"},
      {at::kByte, "uint8"},
      {at::kChar, "int8"},
      {at::kShort, "int16"},
      {at::kInt, "int32"},
      {at::kLong, "int64"},
      {at::kComplexHalf, "complex32"},
      {at::kComplexFloat, "complex64"},
      {at::kComplexDouble, "complex128"},
  };
  const auto* const found = std::ranges::find(names, type, [](const auto& each) { return each.first; });
  if (found != std::end(names)) return std::string{found->second};
  std::string name = c10::toString(type);
  std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

std::string name_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return "SUM";
    case c10d::ReduceOp::AVG: return "AVG";
    case c10d::ReduceOp::PRODUCT: return "PRODUCT";
    case c10d::ReduceOp::MIN: return "MIN";
    case c10d::ReduceOp::MAX: return "MAX";
    case c10d::ReduceOp::BAND: return "BAND";
    case c10d::ReduceOp::BOR: return "BOR";
    case c10d::ReduceOp::BXOR: return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM: return "PREMUL_SUM";
    case c10d::ReduceOp::UNUSED: break;
  }
  return "an unknown operation";
}

}  // namespace lockstep::python
