// Checks of what kernels compute with, for every device, so that all refuse the same with the same words
// (InvalidArgument). `device` is where operands must be. No check reads elements.
#pragma once

#include <string_view>

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::detail {

/// In memory of `device`.
void require_place(DeviceKind device, std::string_view operation, const TensorView& view);

/// f32 or f64, on `device`.
void require_float(DeviceKind device, std::string_view operation, const TensorView& view);

/// A type of activations, on `device`: f32, f64 or bf16.
void require_activations(DeviceKind device, std::string_view operation, const TensorView& view);

/// Both of one such type.
void require_one_type(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b);

/// The same, and of one shape.
void require_same_shape(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b);

/// No byte of one is a byte of the other.
void require_apart(std::string_view operation, const TensorView& a, const TensorView& b);

/// The number called `what` is positive and finite.
void check_positive(std::string_view operation, std::string_view what, double value);

/// It is 0 or more, and finite.
void require_not_negative(std::string_view operation, std::string_view what, double value);

/// It is in [0, 1).
void check_fraction(std::string_view operation, std::string_view what, double value);

}  // namespace lockstep::detail
