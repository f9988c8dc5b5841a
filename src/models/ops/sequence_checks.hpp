// Checks of the operands of sequence kernels for every backend, like checks.hpp for the other kernels.
#pragma once

#include <cstdint>
#include <string_view>

#include <lockstep/core/base/error.hpp>

#include "models/ops/sequence_kernels.hpp"

namespace lockstep::ops {

/// All operands of gather_rows or scatter_add_rows, except the indices' values. `written` is `table` or `rows`.
void check_indexed_rows(DeviceKind device, std::string_view operation, const TensorView& table,
                        const TensorView& indices, const TensorView& rows, const TensorView& written);

/// The exception for the first index that is no row of the table.
InvalidArgument index_outside(std::string_view operation, std::int64_t index, std::int64_t position,
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
  std::int64_t positions() const { return windows * context; }
};

/// Checks all operands; `kept_scores` is the backend's.
AttentionSizes check_attention(DeviceKind device, KeptScores kept_scores, const CausalAttention& operands);
AttentionSizes check_attention(DeviceKind device, KeptScores kept_scores, const CausalAttentionGradient& operands);

}  // namespace lockstep::ops
