// What every backend asks of its operands, so that all refuse the same in the same words. `device` is where the
// backend's operands have to be; none of these reads their elements.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <lockstep/base/error.hpp>
#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

// What the checks below are made of.

/// In the memory of `device`.
void require_place(DeviceKind device, std::string_view operation, const TensorView& view);

/// f32 or f64, on `device`.
void require_float(DeviceKind device, std::string_view operation, const TensorView& view);

/// Both f32 or both f64, on `device`.
void require_one_type(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b);

/// The same, and of one shape.
void require_same_shape(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b);

void require_apart(std::string_view operation, const TensorView& a, const TensorView& b);

/// Of two dimensions.
void require_matrix(std::string_view operation, const TensorView& view);

/// The extents of c [m, n] = op(a) [m, k] · op(b) [k, n].
struct MatmulSizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

MatmulSizes check_matmul(DeviceKind device, const TensorView& a, Transpose transpose_a, const TensorView& b,
                         Transpose transpose_b, const TensorView& c);

/// One or more factors of c.
void check_sum_of_products(DeviceKind device, std::span<const Factors> factors, const TensorView& c);

/// x [n, inputs], weight [inputs, outputs], bias [outputs] and y [n, outputs].
MatmulSizes check_linear(DeviceKind device, const TensorView& x, const TensorView& weight, const TensorView& bias,
                         const TensorView& y);

/// rows [n, columns] and vector [columns].
void check_rows(DeviceKind device, std::string_view operation, const TensorView& rows, const TensorView& vector);

/// Two operands of one float type and shape, in memory apart.
void check_apart(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b);

/// Two operands of one float type and shape: the same memory, or memory apart.
void check_same_or_apart(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b);

/// All but the labels themselves.
void check_cross_entropy(DeviceKind device, const TensorView& logits, const TensorView& labels, std::int64_t samples);
void check_cross_entropy(DeviceKind device, const TensorView& logits, const TensorView& labels, std::int64_t samples,
                         const TensorView& d_logits);

/// For the first counted row whose label is no class.
InvalidArgument label_outside(std::int32_t label, std::int64_t row, const TensorView& logits);

/// Operands of one float type and shape, each in memory of its own, and the numbers of a step.
void check_update(DeviceKind device, std::string_view operation, std::initializer_list<const TensorView*> operands,
                  const UpdateStep& step);

/// A number called `what` that is positive and finite.
void check_positive(std::string_view operation, std::string_view what, double value);

/// One from 0 to below 1.
void check_fraction(std::string_view operation, std::string_view what, double value);

void check_moments(std::string_view operation, const AdamWMoments& moments);

/// Operands of f32 or f64 each.
void check_floats(DeviceKind device, std::string_view operation, std::span<const TensorView> operands);

}  // namespace lockstep::ops
