// What every backend asks of its operands, so that all refuse the same in the same words.
#pragma once

#include <cstdint>
#include <string_view>

#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

/// The extents of c [m, n] = op(a) [m, k] · op(b) [k, n].
struct MatmulSizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

MatmulSizes check_matmul(const TensorView& a, Transpose transpose_a, const TensorView& b, Transpose transpose_b,
                         const TensorView& c);

/// x [n, inputs], weight [inputs, outputs], bias [outputs] and y [n, outputs].
void check_linear(const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& y);

/// rows [n, columns] and vector [columns].
void check_rows(std::string_view operation, const TensorView& rows, const TensorView& vector);

/// Two operands of one float type and shape, in memory apart.
void check_apart(std::string_view operation, const TensorView& a, const TensorView& b);

/// Two operands of one float type and shape: the same memory, or memory apart.
void check_same_or_apart(std::string_view operation, const TensorView& a, const TensorView& b);

void check_cross_entropy(const TensorView& logits, const TensorView& labels, std::int64_t samples);
void check_cross_entropy(const TensorView& logits, const TensorView& labels, std::int64_t samples,
                         const TensorView& d_logits);

void check_divisor(std::string_view operation, double divisor);

}  // namespace lockstep::ops
