#include "models/ops/checks.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep::ops {

DType sum_type(DType dtype) {
  return dtype == DType::bf16 ? DType::f32 : dtype;
}

void require_sums(DeviceKind device, std::string_view operation, const TensorView& activations,
                  const TensorView& sums) {
  if (activations.dtype() != DType::bf16) return require_one_type(device, operation, activations, sums);
  require_activations(device, operation, activations);
  if (sums.dtype() != DType::f32)
    throw InvalidArgument{
        fmt::format("{}: {} beside {}, expected f32", operation, describe(sums), describe(activations))};
  require_place(device, operation, sums);
}

void require_results(DeviceKind device, std::string_view operation, const TensorView& activations,
                     const TensorView& results) {
  results.dtype() == activations.dtype() ? require_one_type(device, operation, activations, results)
                                         : require_sums(device, operation, activations, results);
}

void require_matrix(std::string_view operation, const TensorView& view) {
  if (view.shape().size() != 2)
    throw InvalidArgument{fmt::format("{}: expected two dimensions, not {}", operation, describe(view))};
}

void require_matrix(std::string_view operation, const Kernels::Matrix& matrix) {
  require_matrix(operation, matrix.view);
  if (matrix.columns < 0 || matrix.columns > matrix.stride())
    throw InvalidArgument{
        fmt::format("{}: {} columns are not in {}", operation, matrix.columns, describe(matrix.view))};
}

namespace {

std::string text_of(const Kernels::Matrix& matrix) {
  return matrix.columns == matrix.stride()
             ? describe(matrix.view)
             : fmt::format("the first {} columns of {}", matrix.columns, describe(matrix.view));
}

MatmulSizes require_product(DeviceKind device, std::string_view operation, const Kernels::Matrix& a,
                            Kernels::Transpose transpose_a, const Kernels::Matrix& b, Kernels::Transpose transpose_b,
                            const Kernels::Matrix& c) {
  require_one_type(device, operation, a.view, b.view);
  require_results(device, operation, a.view, c.view);
  for (const Kernels::Matrix* const matrix : {&a, &b, &c}) require_matrix(operation, *matrix);
  const bool flip_a = transpose_a == Kernels::Transpose::yes;
  const bool flip_b = transpose_b == Kernels::Transpose::yes;
  const MatmulSizes sizes{
      .m = flip_a ? a.columns : a.rows(), .n = flip_b ? b.rows() : b.columns, .k = flip_a ? a.rows() : a.columns};
  if (sizes.k != (flip_b ? b.columns : b.rows()) || c.rows() != sizes.m || c.columns != sizes.n)
    throw InvalidArgument{fmt::format("{}: {}{} times {}{} does not give {}", operation, text_of(a),
                                      flip_a ? " transposed" : "", text_of(b), flip_b ? " transposed" : "",
                                      text_of(c))};
  require_apart(operation, a.view, c.view);
  require_apart(operation, b.view, c.view);
  return sizes;
}

}  // namespace

MatmulSizes check_matmul(DeviceKind device, const Kernels::Matrix& a, Kernels::Transpose transpose_a,
                         const Kernels::Matrix& b, Kernels::Transpose transpose_b, const Kernels::Matrix& c) {
  return require_product(device, "matmul", a, transpose_a, b, transpose_b, c);
}

void check_sum_of_products(DeviceKind device, std::span<const Kernels::Factors> factors, const TensorView& c) {
  if (factors.empty()) throw InvalidArgument{"sum_of_products: no factors; expected one or more"};
  if (factors.front().only_shown || !std::ranges::is_sorted(factors, {}, &Kernels::Factors::only_shown))
    throw InvalidArgument{"sum_of_products: a product that is only shown before one to add; expected it behind them"};
  for (const auto& [a, b, unused_onlooker, unused_only_shown] : factors) {
    (void)require_product(device, "sum_of_products", a, Kernels::Transpose::yes, b, Kernels::Transpose::no, c);
    require_sums(device, "sum_of_products", a, c);
  }
}

MatmulSizes check_linear(DeviceKind device, const TensorView& x, const TensorView& weight, const TensorView& bias,
                         const TensorView& y) {
  const MatmulSizes sizes =
      require_product(device, "linear", x, Kernels::Transpose::no, weight, Kernels::Transpose::no, y);
  check_rows(device, "linear", y, bias);
  return sizes;
}

void check_rows(DeviceKind device, std::string_view operation, const TensorView& rows, const TensorView& vector) {
  require_sums(device, operation, rows, vector);
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

void check_convert(DeviceKind device, const TensorView& x, const TensorView& y) {
  constexpr std::string_view operation = "convert";
  require_activations(device, operation, x);
  require_activations(device, operation, y);
  const bool rounds = x.dtype() == DType::f32 && y.dtype() == DType::bf16;
  const bool widens = x.dtype() == DType::bf16 && y.dtype() == DType::f32;
  if ((!rounds && !widens) || x.shape() != y.shape())
    throw InvalidArgument{
        fmt::format("{}: {} to {}, expected f32 and bf16 of one shape", operation, describe(x), describe(y))};
  require_apart(operation, x, y);
}

void check_cross_entropy(DeviceKind device, const Kernels::Matrix& logits, const TensorView& labels,
                         std::int64_t samples) {
  constexpr std::string_view operation = "softmax_cross_entropy";
  require_activations(device, operation, logits.view);
  require_place(device, operation, labels);
  require_matrix(operation, logits);
  const std::int64_t rows = logits.rows();
  if (labels.dtype() != DType::i32 || labels.shape() != Shape{rows})
    throw InvalidArgument{fmt::format("{}: {} cannot be the labels of {}, expected i32[{}]", operation,
                                      describe(labels), text_of(logits), rows)};
  if (samples < 0 || samples > rows)
    throw InvalidArgument{fmt::format("{}: {} samples are not in the rows of {} and {}", operation, samples,
                                      text_of(logits), describe(labels))};
}

void check_cross_entropy(DeviceKind device, const Kernels::Matrix& logits, const TensorView& labels,
                         std::int64_t samples, const Kernels::Matrix& d_logits) {
  constexpr std::string_view operation = "softmax_cross_entropy";
  check_cross_entropy(device, logits, labels, samples);
  check_same_or_apart(device, operation, logits.view, d_logits.view);
  if (logits.columns != d_logits.columns)
    throw InvalidArgument{
        fmt::format("{}: {} and {} are not of one shape", operation, text_of(logits), text_of(d_logits))};
  require_apart(operation, labels, d_logits.view);
}

InvalidArgument label_outside(std::int64_t label, std::int64_t row, const Kernels::Matrix& logits) {
  return InvalidArgument{
      fmt::format("softmax_cross_entropy: label {} of row {} is outside of [0, {}), the classes of {}", label, row,
                  logits.columns, text_of(logits))};
}

}  // namespace lockstep::ops
