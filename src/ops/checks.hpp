// What every backend asks of its operands, so that all refuse the same in the same words. `device` is where the
// backend's operands have to be; none of these reads their elements.
#pragma once

#include <cstdint>
#include <string_view>

#include <lockstep/base/error.hpp>
#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

/// The extents of c [m, n] = op(a) [m, k] · op(b) [k, n].
struct MatmulSizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

MatmulSizes check_matmul(DeviceKind device, const TensorView& a, Transpose transpose_a, const TensorView& b,
                         Transpose transpose_b, const TensorView& c);

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

void check_divisor(std::string_view operation, double divisor);

/// All of gather_rows' or scatter_add_rows' operands but the indices themselves; `written` is one of the other two.
void check_indexed_rows(DeviceKind device, std::string_view operation, const TensorView& table,
                        const TensorView& indices, const TensorView& rows, const TensorView& written);

/// For the first index that is no row of the table.
InvalidArgument index_outside(std::string_view operation, std::int32_t index, std::int64_t position,
                              const TensorView& table);

void check_layer_norm(DeviceKind device, const LayerNorm& operands);
void check_layer_norm(DeviceKind device, const LayerNormGradient& operands);

void check_gelu_gradient(DeviceKind device, const TensorView& x, const TensorView& dy, const TensorView& dx);

struct AttentionSizes {
  std::int64_t windows;
  std::int64_t context;
  std::int64_t heads;
  std::int64_t head_width;

  std::int64_t width() const { return heads * head_width; }
};

AttentionSizes check_attention(DeviceKind device, const CausalAttention& operands);
AttentionSizes check_attention(DeviceKind device, const CausalAttentionGradient& operands);

}  // namespace lockstep::ops
