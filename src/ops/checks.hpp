// Checks of operands for every backend, so that all refuse the same with the same words (InvalidArgument). `device` is
// where the backend's operands must be. No check reads elements.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <lockstep/base/error.hpp>
#include <lockstep/ops/kernels.hpp>

#include "ops/update_kernels.hpp"

namespace lockstep::ops {

// Building blocks of the checks below.

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

/// The type of what is not bf16 beside activations of `dtype`: f32 beside bf16, otherwise the same.
DType sum_type(DType dtype);

/// `sums` is of the sum_type of `activations`, both on `device`.
void require_sums(DeviceKind device, std::string_view operation, const TensorView& activations, const TensorView& sums);

/// `results` are of the type of `activations` or of their sum_type, both on `device`.
void require_results(DeviceKind device, std::string_view operation, const TensorView& activations,
                     const TensorView& results);

void require_apart(std::string_view operation, const TensorView& a, const TensorView& b);

/// The view has two dimensions, and `columns` is at most the second extent.
void require_matrix(std::string_view operation, const Kernels::Matrix& matrix);
void require_matrix(std::string_view operation, const TensorView& view);

/// The extents of c [m, n] = op(a) [m, k] · op(b) [k, n].
struct MatmulSizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

MatmulSizes check_matmul(DeviceKind device, const Kernels::Matrix& a, Kernels::Transpose transpose_a,
                         const Kernels::Matrix& b, Kernels::Transpose transpose_b, const Kernels::Matrix& c);

/// At least one, and each fits c.
void check_sum_of_products(DeviceKind device, std::span<const Kernels::Factors> factors, const TensorView& c);

/// x [n, inputs], weight [inputs, outputs], bias [outputs] and y [n, outputs].
MatmulSizes check_linear(DeviceKind device, const TensorView& x, const TensorView& weight, const TensorView& bias,
                         const TensorView& y);

/// rows [n, columns] and vector [columns], which is of their sum_type.
void check_rows(DeviceKind device, std::string_view operation, const TensorView& rows, const TensorView& vector);

/// Two operands of one type of activations and shape that do not overlap.
void check_apart(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b);

/// Two operands of one type of activations and shape: in the same memory, or without overlap.
void check_same_or_apart(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b);

/// f32 and bf16, in either order, of one shape and apart.
void check_convert(DeviceKind device, const TensorView& x, const TensorView& y);

/// Everything except the labels' values.
void check_cross_entropy(DeviceKind device, const Kernels::Matrix& logits, const TensorView& labels,
                         std::int64_t samples);
void check_cross_entropy(DeviceKind device, const Kernels::Matrix& logits, const TensorView& labels,
                         std::int64_t samples, const Kernels::Matrix& d_logits);

/// The exception for the first counted row whose label is no class.
InvalidArgument label_outside(std::int64_t label, std::int64_t row, const Kernels::Matrix& logits);

/// Operands of one float type and shape that do not overlap, and the scalars of a step.
void check_update(DeviceKind device, std::string_view operation, std::initializer_list<const TensorView*> operands,
                  const UpdateStep& step);

/// The number called `what` is positive and finite.
void check_positive(std::string_view operation, std::string_view what, double value);

/// It is in [0, 1).
void check_fraction(std::string_view operation, std::string_view what, double value);

void check_moments(std::string_view operation, const AdamWMoments& moments);

/// Each operand is f32 or f64.
void check_floats(DeviceKind device, std::string_view operation, std::span<const TensorView> operands);

/// `part` is f32 or f64, and `sums` f64 with an element for each of its blocks.
void check_block_squares(DeviceKind device, const TensorView& part, const TensorView& sums);

}  // namespace lockstep::ops
