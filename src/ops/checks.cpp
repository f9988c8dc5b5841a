#include "checks.hpp"

#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

namespace lockstep::ops {
namespace {

std::string named(DeviceKind device) {
  return device == DeviceKind::cpu ? "the host" : fmt::format("a {} device", name_of(device));
}

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

void require_one_type(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b) {
  require_float(device, operation, a);
  require_float(device, operation, b);
  if (a.dtype() != b.dtype())
    throw InvalidArgument{fmt::format("{}: {} and {} are not of one type", operation, describe(a), describe(b))};
}

bool overlap(const TensorView& a, const TensorView& b) {
  // std::less orders pointers into different allocations; the operators need not.
  const std::less<const std::byte*> before;
  return a.bytes() > 0 && b.bytes() > 0 && before(a.data(), b.data() + b.bytes()) &&
         before(b.data(), a.data() + a.bytes());
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

void require_matrix(std::string_view operation, const TensorView& view) {
  if (view.shape().size() != 2)
    throw InvalidArgument{fmt::format("{}: expected two dimensions, not {}", operation, describe(view))};
}

MatmulSizes require_product(DeviceKind device, std::string_view operation, const TensorView& a, Transpose transpose_a,
                            const TensorView& b, Transpose transpose_b, const TensorView& c) {
  require_one_type(device, operation, a, b);
  require_one_type(device, operation, a, c);
  for (const TensorView* const view : {&a, &b, &c}) require_matrix(operation, *view);
  const bool flip_a = transpose_a == Transpose::yes;
  const bool flip_b = transpose_b == Transpose::yes;
  const MatmulSizes sizes{
      .m = a.shape()[flip_a ? 1 : 0], .n = b.shape()[flip_b ? 0 : 1], .k = a.shape()[flip_a ? 0 : 1]};
  if (sizes.k != b.shape()[flip_b ? 1 : 0] || c.shape() != Shape{sizes.m, sizes.n})
    throw InvalidArgument{fmt::format("{}: {}{} times {}{} does not give {}", operation, describe(a),
                                      flip_a ? " transposed" : "", describe(b), flip_b ? " transposed" : "",
                                      describe(c))};
  require_apart(operation, a, c);
  require_apart(operation, b, c);
  return sizes;
}

/// What one operand of many has to be, by the name that the operation's contract gives it.
struct Expected {
  std::string_view name;
  const TensorView& view;
  Shape shape;
};

void require_expected(DeviceKind device, std::string_view operation, DType dtype, const Expected& operand) {
  const auto& [name, view, shape] = operand;
  if (view.dtype() != dtype || view.shape() != shape)
    throw InvalidArgument{
        fmt::format("{}: {} is {}, expected {}{}", operation, name, describe(view), name_of(dtype), to_string(shape))};
  require_place(device, operation, view);
}

/// `written` first, which must lie apart from all the others.
void require_apart_from(std::string_view operation, const TensorView& written,
                        std::initializer_list<const TensorView*> others) {
  for (const TensorView* const other : others) require_apart(operation, written, *other);
}

AttentionSizes require_attention(DeviceKind device, std::string_view operation, const TensorView& qkv,
                                 const TensorView& probabilities, const Expected& rows) {
  require_float(device, operation, qkv);
  require_matrix(operation, qkv);
  const Shape& shape = probabilities.shape();
  if (shape.size() != 4)
    throw InvalidArgument{fmt::format("{}: probabilities is {}, expected [windows, heads, context, context]", operation,
                                      describe(probabilities))};
  const std::int64_t heads = shape[1];
  if (heads < 1 || qkv.shape()[1] < 1 || qkv.shape()[1] % (3 * heads) != 0)
    throw InvalidArgument{fmt::format("{}: the columns of {} are not queries, keys and values of the heads of {}",
                                      operation, describe(qkv), describe(probabilities))};
  const AttentionSizes sizes{
      .windows = shape[0], .context = shape[2], .heads = heads, .head_width = qkv.shape()[1] / (3 * heads)};
  const std::int64_t positions = sizes.windows * sizes.context;
  const DType dtype = qkv.dtype();
  require_expected(device, operation, dtype, {"qkv", qkv, {positions, 3 * sizes.width()}});
  require_expected(device, operation, dtype,
                   {"probabilities", probabilities, {sizes.windows, heads, sizes.context, sizes.context}});
  require_expected(device, operation, dtype, {rows.name, rows.view, {positions, sizes.width()}});
  return sizes;
}

}  // namespace

MatmulSizes check_matmul(DeviceKind device, const TensorView& a, Transpose transpose_a, const TensorView& b,
                         Transpose transpose_b, const TensorView& c) {
  return require_product(device, "matmul", a, transpose_a, b, transpose_b, c);
}

MatmulSizes check_linear(DeviceKind device, const TensorView& x, const TensorView& weight, const TensorView& bias,
                         const TensorView& y) {
  const MatmulSizes sizes = require_product(device, "linear", x, Transpose::no, weight, Transpose::no, y);
  check_rows(device, "linear", y, bias);
  return sizes;
}

void check_rows(DeviceKind device, std::string_view operation, const TensorView& rows, const TensorView& vector) {
  require_one_type(device, operation, rows, vector);
  require_matrix(operation, rows);
  if (vector.shape() != Shape{rows.shape()[1]})
    throw InvalidArgument{fmt::format("{}: {} does not fit the rows of {}, expected [{}]", operation, describe(vector),
                                      describe(rows), rows.shape()[1])};
  require_apart(operation, rows, vector);
}

void check_apart(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b) {
  require_same_shape(device, operation, a, b);
  require_apart(operation, a, b);
}

void check_same_or_apart(DeviceKind device, std::string_view operation, const TensorView& a, const TensorView& b) {
  require_same_shape(device, operation, a, b);
  if (a.data() != b.data()) require_apart(operation, a, b);
}

void check_cross_entropy(DeviceKind device, const TensorView& logits, const TensorView& labels, std::int64_t samples) {
  constexpr std::string_view operation = "softmax_cross_entropy";
  require_float(device, operation, logits);
  require_place(device, operation, labels);
  require_matrix(operation, logits);
  const std::int64_t rows = logits.shape()[0];
  if (labels.dtype() != DType::i32 || labels.shape() != Shape{rows})
    throw InvalidArgument{fmt::format("{}: {} are no labels for {}, expected i32[{}]", operation, describe(labels),
                                      describe(logits), rows)};
  if (samples < 0 || samples > rows)
    throw InvalidArgument{fmt::format("{}: {} samples are not in the rows of {} and {}", operation, samples,
                                      describe(logits), describe(labels))};
}

void check_cross_entropy(DeviceKind device, const TensorView& logits, const TensorView& labels, std::int64_t samples,
                         const TensorView& d_logits) {
  check_cross_entropy(device, logits, labels, samples);
  check_same_or_apart(device, "softmax_cross_entropy", logits, d_logits);
  require_apart("softmax_cross_entropy", labels, d_logits);
}

InvalidArgument label_outside(std::int32_t label, std::int64_t row, const TensorView& logits) {
  return InvalidArgument{
      fmt::format("softmax_cross_entropy: label {} of row {} is outside of [0, {}), the classes of {}", label, row,
                  logits.shape()[1], describe(logits))};
}

void check_divisor(std::string_view operation, double divisor) {
  if (!(divisor > 0) || std::isinf(divisor))
    throw InvalidArgument{fmt::format("{}: the divisor is {}, expected a positive number", operation, divisor)};
}

void check_indexed_rows(DeviceKind device, std::string_view operation, const TensorView& table,
                        const TensorView& indices, const TensorView& rows, const TensorView& written) {
  require_float(device, operation, table);
  require_matrix(operation, table);
  require_matrix(operation, rows);
  const std::int64_t count = rows.shape()[0];
  require_expected(device, operation, table.dtype(), {"rows", rows, {count, table.shape()[1]}});
  require_expected(device, operation, DType::i32, {"indices", indices, {count}});
  require_apart(operation, table, rows);
  require_apart(operation, written, indices);
}

InvalidArgument index_outside(std::string_view operation, std::int32_t index, std::int64_t position,
                              const TensorView& table) {
  return InvalidArgument{fmt::format("{}: index {} at position {} is outside of [0, {}), the rows of {}", operation,
                                     index, position, table.shape()[0], describe(table))};
}

void check_layer_norm(DeviceKind device, const LayerNorm& operands) {
  constexpr std::string_view operation = "layer_norm";
  const auto& [x, gain, bias, epsilon, y, moments] = operands;
  require_float(device, operation, x);
  require_matrix(operation, x);
  const std::int64_t rows = x.shape()[0], width = x.shape()[1];
  for (const Expected& operand : {Expected{"gain", gain, {width}}, Expected{"bias", bias, {width}},
                                  Expected{"y", y, {rows, width}}, Expected{"moments", moments, {rows, 2}}})
    require_expected(device, operation, x.dtype(), operand);
  if (!(epsilon > 0) || std::isinf(epsilon))
    throw InvalidArgument{fmt::format("{}: epsilon is {}, expected a positive number", operation, epsilon)};
  require_apart_from(operation, y, {&x, &gain, &bias, &moments});
  require_apart_from(operation, moments, {&x, &gain, &bias});
}

void check_layer_norm(DeviceKind device, const LayerNormGradient& operands) {
  constexpr std::string_view operation = "layer_norm_gradient";
  const auto& [x, gain, moments, dy, dx, d_gain, d_bias] = operands;
  require_float(device, operation, x);
  require_matrix(operation, x);
  const std::int64_t rows = x.shape()[0], width = x.shape()[1];
  for (const Expected& operand :
       {Expected{"gain", gain, {width}}, Expected{"moments", moments, {rows, 2}}, Expected{"dy", dy, {rows, width}},
        Expected{"dx", dx, {rows, width}}, Expected{"d_gain", d_gain, {width}}, Expected{"d_bias", d_bias, {width}}})
    require_expected(device, operation, x.dtype(), operand);
  check_same_or_apart(device, operation, dy, dx);
  require_apart_from(operation, dx, {&x, &gain, &moments});
  require_apart_from(operation, d_gain, {&x, &gain, &moments, &dy, &dx, &d_bias});
  require_apart_from(operation, d_bias, {&x, &gain, &moments, &dy, &dx});
}

void check_gelu_gradient(DeviceKind device, const TensorView& x, const TensorView& dy, const TensorView& dx) {
  check_apart(device, "gelu_gradient", x, dx);
  check_same_or_apart(device, "gelu_gradient", dy, dx);
}

AttentionSizes check_attention(DeviceKind device, const CausalAttention& operands) {
  constexpr std::string_view operation = "causal_attention";
  const auto& [qkv, probabilities, y] = operands;
  const AttentionSizes sizes = require_attention(device, operation, qkv, probabilities, {"y", y, {}});
  require_apart_from(operation, y, {&qkv, &probabilities});
  require_apart_from(operation, probabilities, {&qkv});
  return sizes;
}

AttentionSizes check_attention(DeviceKind device, const CausalAttentionGradient& operands) {
  constexpr std::string_view operation = "causal_attention_gradient";
  const auto& [qkv, probabilities, dy, d_qkv, scratch] = operands;
  const AttentionSizes sizes = require_attention(device, operation, qkv, probabilities, {"dy", dy, {}});
  require_expected(device, operation, qkv.dtype(), {"d_qkv", d_qkv, qkv.shape()});
  require_expected(device, operation, qkv.dtype(), {"scratch", scratch, {sizes.context, sizes.context}});
  require_apart_from(operation, d_qkv, {&qkv, &probabilities, &dy, &scratch});
  require_apart_from(operation, scratch, {&qkv, &probabilities, &dy});
  return sizes;
}

}  // namespace lockstep::ops
