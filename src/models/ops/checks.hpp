// Checks of operands for every backend, so that all refuse the same with the same words (InvalidArgument). `device` is
// where the backend's operands must be. No check reads elements.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/tensor/operand_checks.hpp"

namespace lockstep::ops {

using detail::check_fraction;
using detail::check_positive;
using detail::require_activations;
using detail::require_apart;
using detail::require_float;
using detail::require_one_type;
using detail::require_place;
using detail::require_same_shape;

// Building blocks of the checks below.

/// The type of what is not bf16 beside activations of `dtype`: f32 beside bf16, otherwise the same.
DType sum_type(DType dtype);

/// `sums` is of the sum_type of `activations`, both on `device`.
void require_sums(DeviceKind device, std::string_view operation, const TensorView& activations, const TensorView& sums);

/// `results` are of the type of `activations` or of their sum_type, both on `device`.
void require_results(DeviceKind device, std::string_view operation, const TensorView& activations,
                     const TensorView& results);

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

}  // namespace lockstep::ops
