#include "core/tensor/operand_checks.hpp"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/tensor/overlap.hpp"

namespace lockstep::detail {
namespace {

std::string named(DeviceKind device) {
  return device == DeviceKind::cpu ? "the host" : fmt::format("a {} device", name_of(device));
}

InvalidArgument bad_number(std::string_view operation, std::string_view what, double value, std::string_view expected) {
  return InvalidArgument{fmt::format("{}: the {} is {}, expected {}", operation, what, value, expected)};
}

}  // namespace

void require_place(DeviceKind device, std::string_view operation, const TensorView& view) {
  if (view.device() != device)
    throw InvalidArgument{fmt::format("{}: {} is in the memory of {}, expected {}'s", operation, describe(view),
                                      named(view.device()), named(device))};
}

void require_float(DeviceKind device, std::string_view operation, const TensorView& view) {
  if (view.dtype() != DType::f32 && view.dtype() != DType::f64)
    throw InvalidArgument{fmt::format("{}: expected f32 or f64, not {}", operation, describe(view))};
  require_place(device, operation, view);
}

void require_activations(DeviceKind device, std::string_view operation, const TensorView& view) {
  if (view.dtype() != DType::f32 && view.dtype() != DType::f64 && view.dtype() != DType::bf16)
    throw InvalidArgument{fmt::format("{}: expected f32, f64 or bf16, not {}", operation, describe(view))};
  require_place(device, operation, view);
}

void require_one_type(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b) {
  require_activations(device, operation, a);
  require_activations(device, operation, b);
  if (a.dtype() != b.dtype())
    throw InvalidArgument{fmt::format("{}: {} and {} are not of one type", operation, describe(a), describe(b))};
}

void require_apart(std::string_view operation, const TensorView& a, const TensorView& b) {
  if (overlap(a, b))
    throw InvalidArgument{fmt::format("{}: {} and {} overlap in memory", operation, describe(a), describe(b))};
}

void require_same_shape(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b) {
  require_one_type(device, operation, a, b);
  if (a.shape() != b.shape())
    throw InvalidArgument{fmt::format("{}: {} and {} are not of one shape", operation, describe(a), describe(b))};
}

// Comparisons of such numbers are negated, so that a NaN fails.

void require_not_negative(std::string_view operation, std::string_view what, double value) {
  if (!(value >= 0) || std::isinf(value)) throw bad_number(operation, what, value, "a number from 0");
}

void check_positive(std::string_view operation, std::string_view what, double value) {
  if (!(value > 0) || std::isinf(value)) throw bad_number(operation, what, value, "a positive number");
}

void check_fraction(std::string_view operation, std::string_view what, double value) {
  if (!(value >= 0 && value < 1)) throw bad_number(operation, what, value, "a number from 0 to below 1");
}

}  // namespace lockstep::detail
