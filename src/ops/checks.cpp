#include "checks.hpp"

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

namespace lockstep::ops {
namespace {

void require_host(std::string_view operation, const TensorView& view) {
  if (view.device() != DeviceKind::cpu)
    throw InvalidArgument{fmt::format("{}: {} is in the memory of a {} device, expected the host's", operation,
                                      describe(view), name_of(view.device()))};
}

void require_float(std::string_view operation, const TensorView& view) {
  if (view.dtype() != DType::f32 && view.dtype() != DType::f64)
    throw InvalidArgument{fmt::format("{}: expected f32 or f64, not {}", operation, describe(view))};
  require_host(operation, view);
}

void require_one_type(std::string_view operation, const TensorView& a, const TensorView& b) {
  require_float(operation, a);
  require_float(operation, b);
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

void require_same_shape(std::string_view operation, const TensorView& a, const TensorView& b) {
  require_one_type(operation, a, b);
  if (a.shape() != b.shape())
    throw InvalidArgument{fmt::format("{}: {} and {} are not of one shape", operation, describe(a), describe(b))};
}

void require_matrix(std::string_view operation, const TensorView& view) {
  if (view.shape().size() != 2)
    throw InvalidArgument{fmt::format("{}: expected two dimensions, not {}", operation, describe(view))};
}

}  // namespace

MatmulSizes check_matmul(const TensorView& a, Transpose transpose_a, const TensorView& b, Transpose transpose_b,
                         const TensorView& c) {
  require_one_type("matmul", a, b);
  require_one_type("matmul", a, c);
  for (const TensorView* const view : {&a, &b, &c}) require_matrix("matmul", *view);
  const bool flip_a = transpose_a == Transpose::yes;
  const bool flip_b = transpose_b == Transpose::yes;
  const MatmulSizes sizes{
      .m = a.shape()[flip_a ? 1 : 0], .n = b.shape()[flip_b ? 0 : 1], .k = a.shape()[flip_a ? 0 : 1]};
  if (sizes.k != b.shape()[flip_b ? 1 : 0] || c.shape() != Shape{sizes.m, sizes.n})
    throw InvalidArgument{fmt::format("matmul: {}{} times {}{} does not give {}", describe(a),
                                      flip_a ? " transposed" : "", describe(b), flip_b ? " transposed" : "",
                                      describe(c))};
  require_apart("matmul", a, c);
  require_apart("matmul", b, c);
  return sizes;
}

void check_rows(std::string_view operation, const TensorView& rows, const TensorView& vector) {
  require_one_type(operation, rows, vector);
  require_matrix(operation, rows);
  if (vector.shape() != Shape{rows.shape()[1]})
    throw InvalidArgument{fmt::format("{}: {} does not fit the rows of {}, expected [{}]", operation, describe(vector),
                                      describe(rows), rows.shape()[1])};
  require_apart(operation, rows, vector);
}

void check_linear(const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& y) {
  check_matmul(x, Transpose::no, weight, Transpose::no, y);
  check_rows("linear", y, bias);
}

void check_apart(std::string_view operation, const TensorView& a, const TensorView& b) {
  require_same_shape(operation, a, b);
  require_apart(operation, a, b);
}

void check_same_or_apart(std::string_view operation, const TensorView& a, const TensorView& b) {
  require_same_shape(operation, a, b);
  if (a.data() != b.data()) require_apart(operation, a, b);
}

void check_cross_entropy(const TensorView& logits, const TensorView& labels, std::int64_t samples) {
  constexpr std::string_view operation = "softmax_cross_entropy";
  require_float(operation, logits);
  require_host(operation, labels);
  require_matrix(operation, logits);
  const std::int64_t rows = logits.shape()[0];
  const std::int64_t classes = logits.shape()[1];
  if (labels.dtype() != DType::i32 || labels.shape() != Shape{rows})
    throw InvalidArgument{fmt::format("{}: {} are no labels for {}, expected i32[{}]", operation, describe(labels),
                                      describe(logits), rows)};
  if (samples < 0 || samples > rows)
    throw InvalidArgument{fmt::format("{}: {} samples are not in the rows of {} and {}", operation, samples,
                                      describe(logits), describe(labels))};
  const auto label = labels.elements<std::int32_t>().first(static_cast<std::size_t>(samples));
  for (std::size_t row = 0; row < label.size(); ++row)
    if (label[row] < 0 || label[row] >= classes)
      throw InvalidArgument{fmt::format("{}: label {} of row {} is outside of [0, {}), the classes of {}", operation,
                                        label[row], row, classes, describe(logits))};
}

void check_cross_entropy(const TensorView& logits, const TensorView& labels, std::int64_t samples,
                         const TensorView& d_logits) {
  check_cross_entropy(logits, labels, samples);
  check_same_or_apart("softmax_cross_entropy", logits, d_logits);
  require_apart("softmax_cross_entropy", labels, d_logits);
}

void check_divisor(std::string_view operation, double divisor) {
  if (!(divisor > 0) || std::isinf(divisor))
    throw InvalidArgument{fmt::format("{}: the divisor is {}, expected a positive number", operation, divisor)};
}

}  // namespace lockstep::ops
