#include "models/ops/sequence_checks.hpp"

#include <initializer_list>

#include <fmt/format.h>

#include "models/ops/checks.hpp"

namespace lockstep::ops {
namespace {

/// What an operand must be, with its name in the operation's contract.
struct Expected {
  std::string_view name;
  const TensorView& view;
  Shape shape;
};

void require_expected(DeviceKind device, std::string_view operation, DType dtype, const Expected& operand) {
  const auto& [name, view, shape] = operand;
  if (view.dtype() != dtype || view.shape() != shape)
    throw InvalidArgument{
        fmt::format("{}: {} is {}, expected {}{}", operation, name, describe(view), name_of(dtype), describe(shape))};
  require_place(device, operation, view);
}

/// `written` must not overlap any of the others.
void require_apart_from(std::string_view operation, const TensorView& written,
                        std::initializer_list<const TensorView*> others) {
  for (const TensorView* const other : others) require_apart(operation, written, *other);
}

AttentionSizes require_attention(DeviceKind device, std::string_view operation, KeptScores kept_scores,
                                 const TensorView& qkv, const TensorView& kept, const Expected& rows) {
  require_activations(device, operation, qkv);
  require_matrix(operation, qkv);
  const bool of_each_position = kept_scores == KeptScores::probabilities;
  const Shape& shape = kept.shape();
  if (shape.size() != (of_each_position ? 4 : 3))
    throw InvalidArgument{fmt::format("{}: kept is {}, expected [windows, heads, context{}]", operation, describe(kept),
                                      of_each_position ? ", context" : "")};
  const std::int64_t heads = shape[1];
  if (heads < 1 || qkv.shape()[1] < 1 || qkv.shape()[1] % (3 * heads) != 0)
    throw InvalidArgument{fmt::format("{}: the columns of {} are not queries, keys and values of the heads of {}",
                                      operation, describe(qkv), describe(kept))};
  const AttentionSizes sizes{
      .windows = shape[0], .context = shape[2], .heads = heads, .head_width = qkv.shape()[1] / (3 * heads)};
  const DType dtype = qkv.dtype();
  require_expected(device, operation, dtype, {"qkv", qkv, {sizes.positions(), 3 * sizes.width()}});
  require_expected(device, operation, of_each_position ? dtype : sum_type(dtype),
                   {"kept", kept, shape_of(kept_scores, sizes.windows, heads, sizes.context)});
  require_expected(device, operation, dtype, {rows.name, rows.view, {sizes.positions(), sizes.width()}});
  return sizes;
}

}  // namespace

void check_indexed_rows(DeviceKind device, std::string_view operation, const TensorView& table,
                        const TensorView& indices, const TensorView& rows, const TensorView& written) {
  require_activations(device, operation, table);
  require_matrix(operation, table);
  require_matrix(operation, rows);
  const std::int64_t count = rows.shape()[0];
  const bool is_wider = &written == &table && rows.dtype() == DType::bf16;  // a sum of rows
  if (is_wider) require_sums(device, operation, rows, table);
  const DType dtype = is_wider ? rows.dtype() : table.dtype();
  require_expected(device, operation, dtype, {"rows", rows, {count, table.shape()[1]}});
  require_expected(device, operation, DType::i32, {"indices", indices, {count}});
  require_apart(operation, table, rows);
  require_apart(operation, written, indices);
}

InvalidArgument index_outside(std::string_view operation, std::int64_t index, std::int64_t position,
                              const TensorView& table) {
  return InvalidArgument{fmt::format("{}: index {} at position {} is outside of [0, {}), the rows of {}", operation,
                                     index, position, table.shape()[0], describe(table))};
}

void check_layer_norm(DeviceKind device, const LayerNorm& operands) {
  constexpr std::string_view operation = "layer_norm";
  const auto& [x, gain, bias, epsilon, y, moments] = operands;
  require_results(device, operation, y, x);
  require_matrix(operation, x);
  const std::int64_t rows = x.shape()[0], width = x.shape()[1];
  for (const Expected& operand :
       {Expected{"gain", gain, {width}}, Expected{"bias", bias, {width}}, Expected{"moments", moments, {rows, 2}}})
    require_expected(device, operation, sum_type(x.dtype()), operand);
  require_expected(device, operation, y.dtype(), {"y", y, {rows, width}});
  check_positive(operation, "epsilon", epsilon);
  require_apart_from(operation, y, {&x, &gain, &bias, &moments});
  require_apart_from(operation, moments, {&x, &gain, &bias});
}

void check_layer_norm(DeviceKind device, const LayerNormGradient& operands) {
  constexpr std::string_view operation = "layer_norm_gradient";
  const auto& [x, gain, moments, dy, dx, d_gain, d_bias] = operands;
  require_results(device, operation, dy, x);
  require_matrix(operation, x);
  const std::int64_t rows = x.shape()[0], width = x.shape()[1];
  for (const Expected& operand : {Expected{"gain", gain, {width}}, Expected{"moments", moments, {rows, 2}},
                                  Expected{"d_gain", d_gain, {width}}, Expected{"d_bias", d_bias, {width}}})
    require_expected(device, operation, sum_type(x.dtype()), operand);
  require_expected(device, operation, dy.dtype(), {"dy", dy, {rows, width}});
  require_expected(device, operation, x.dtype(), {"dx", dx, {rows, width}});
  if (dy.data() != dx.data() || dy.dtype() != dx.dtype()) require_apart(operation, dy, dx);
  require_apart_from(operation, dx, {&x, &gain, &moments});
  require_apart_from(operation, d_gain, {&x, &gain, &moments, &dy, &dx, &d_bias});
  require_apart_from(operation, d_bias, {&x, &gain, &moments, &dy, &dx});
}

void check_gelu_gradient(DeviceKind device, const TensorView& x, const TensorView& dy, const TensorView& dx) {
  check_apart(device, "gelu_gradient", x, dx);
  check_same_or_apart(device, "gelu_gradient", dy, dx);
}

AttentionSizes check_attention(DeviceKind device, KeptScores kept_scores, const CausalAttention& operands) {
  constexpr std::string_view operation = "causal_attention";
  const auto& [qkv, kept, y] = operands;
  const AttentionSizes sizes = require_attention(device, operation, kept_scores, qkv, kept, {"y", y, {}});
  require_apart_from(operation, y, {&qkv, &kept});
  require_apart_from(operation, kept, {&qkv});
  return sizes;
}

AttentionSizes check_attention(DeviceKind device, KeptScores kept_scores, const CausalAttentionGradient& operands) {
  constexpr std::string_view operation = "causal_attention_gradient";
  const auto& [qkv, kept, dy, d_qkv, scratch] = operands;
  const AttentionSizes sizes = require_attention(device, operation, kept_scores, qkv, kept, {"dy", dy, {}});
  require_expected(device, operation, qkv.dtype(), {"d_qkv", d_qkv, qkv.shape()});
  require_expected(device, operation, qkv.dtype(), {"scratch", scratch, {sizes.heads, sizes.context, sizes.context}});
  require_apart_from(operation, d_qkv, {&qkv, &kept, &dy, &scratch});
  require_apart_from(operation, scratch, {&qkv, &kept, &dy});
  return sizes;
}

}  // namespace lockstep::ops
