#include "ops/reference/reference.hpp"

#include <algorithm>
#include <vector>

#include "ops/backends.hpp"
#include "ops/checks.hpp"
#include "ops/product_tree.hpp"
#include "ops/reference/loops.hpp"
#include "ops/reference/softmax.hpp"
#include "ops/reference/typed.hpp"
#include "ops/with_type.hpp"

namespace lockstep::ops {
namespace {

void check_labels(const TensorView& logits, const TensorView& labels, std::int64_t samples) {
  const auto label = labels.elements<std::int32_t>().first(static_cast<std::size_t>(samples));
  const auto bad = std::find_if(label.begin(), label.end(),
                                [&](std::int32_t each) { return each < 0 || each >= logits.shape()[1]; });
  if (bad != label.end()) throw label_outside(*bad, bad - label.begin(), logits);
}

}  // namespace

std::string_view ReferenceKernels::name() const {
  return "reference";
}

std::string ReferenceKernels::fingerprint() const {
  return "reference";
}

void ReferenceKernels::matmul(const TensorView& a, Transpose transpose_a, const TensorView& b, Transpose transpose_b,
                              const TensorView& c) const {
  const auto [m, n, k] = check_matmul(DeviceKind::cpu, a, transpose_a, b, transpose_b, c);
  const bool flip_a = transpose_a == Transpose::yes;
  const std::int64_t a_row = flip_a ? 1 : k;
  const std::int64_t a_column = flip_a ? m : 1;
  with_type(c.dtype(), [&, m = m, n = n, k = k]<class T>() {
    if (transpose_b == Transpose::no)
      return loops::matmul(m, n, k, data<T>(a), a_row, a_column, data<T>(b), n, data<T>(c), n);
    // A copy of b costs one pass. Reading b by columns would cost a stride in every step, or another order of the sum.
    const std::vector<T> rows_of_b = loops::transposed(data<T>(b), n, k, k);
    loops::matmul(m, n, k, data<T>(a), a_row, a_column, rows_of_b.data(), n, data<T>(c), n);
  });
}

void ReferenceKernels::sum_of_products(std::span<const Factors> factors, const TensorView& c) const {
  check_sum_of_products(DeviceKind::cpu, factors, c);
  sum_of_whole_products(*this, factors, c, host_stream());
}

void ReferenceKernels::linear(const TensorView& x, const TensorView& weight, const TensorView& bias,
                              Activation activation, const TensorView& y) const {
  check_linear(DeviceKind::cpu, x, weight, bias, y);
  matmul(x, Transpose::no, weight, Transpose::no, y);
  add_bias(y, bias);
  if (activation == Activation::relu) relu(y, y);
}

void ReferenceKernels::add_bias(const TensorView& rows, const TensorView& bias) const {
  check_rows(DeviceKind::cpu, "add_bias", rows, bias);
  with_type(rows.dtype(), [&]<class T>() {
    const std::int64_t columns = bias.count();
    for (std::int64_t row = 0; row < rows.shape()[0]; ++row)
      loops::add(data<T>(rows) + row * columns, data<T>(bias), columns);
  });
}

void ReferenceKernels::sum_rows(const TensorView& rows, const TensorView& out) const {
  check_rows(DeviceKind::cpu, "sum_rows", rows, out);
  with_type(rows.dtype(), [&]<class T>() {
    const std::int64_t columns = out.count();
    std::fill_n(data<T>(out), columns, T{});
    for (std::int64_t row = 0; row < rows.shape()[0]; ++row)
      loops::add(data<T>(out), data<T>(rows) + row * columns, columns);
  });
}

void ReferenceKernels::relu(const TensorView& x, const TensorView& y) const {
  check_same_or_apart(DeviceKind::cpu, "relu", x, y);
  with_type(x.dtype(), [&]<class T>() { loops::relu(data<T>(x), data<T>(y), x.count()); });
}

void ReferenceKernels::relu_gradient(const TensorView& y, const TensorView& dy, const TensorView& dx) const {
  check_same_or_apart(DeviceKind::cpu, "relu_gradient", y, dx);
  check_same_or_apart(DeviceKind::cpu, "relu_gradient", dy, dx);
  with_type(y.dtype(), [&]<class T>() { loops::relu_gradient(data<T>(y), data<T>(dy), data<T>(dx), y.count()); });
}

BatchLoss ReferenceKernels::softmax_cross_entropy(const TensorView& logits, const TensorView& labels,
                                                  std::int64_t samples, const TensorView& d_logits) const {
  check_cross_entropy(DeviceKind::cpu, logits, labels, samples, d_logits);
  check_labels(logits, labels, samples);
  return with_type(logits.dtype(), [&]<class T>() {
    const std::int64_t classes = logits.shape()[1];
    const std::int32_t* const label = data<std::int32_t>(labels);
    BatchLoss total;
    for (std::int64_t row = 0; row < samples; ++row) {
      T* const d_row = data<T>(d_logits) + row * classes;
      const auto entropy = loops::row_entropy(data<T>(logits) + row * classes, classes, label[row], d_row);
      loops::row_gradient(d_row, classes, label[row], entropy.sum);
      total.loss_sum += entropy.loss;
      total.correct += entropy.correct;
    }
    std::fill_n(data<T>(d_logits) + samples * classes, d_logits.count() - samples * classes, T{});
    return total;
  });
}

BatchLoss ReferenceKernels::softmax_cross_entropy(const TensorView& logits, const TensorView& labels,
                                                  std::int64_t samples) const {
  check_cross_entropy(DeviceKind::cpu, logits, labels, samples);
  check_labels(logits, labels, samples);
  return with_type(logits.dtype(), [&]<class T>() {
    const std::int64_t classes = logits.shape()[1];
    const std::int32_t* const label = data<std::int32_t>(labels);
    std::vector<T> exps(static_cast<std::size_t>(classes));
    BatchLoss total;
    for (std::int64_t row = 0; row < samples; ++row) {
      const auto entropy = loops::row_entropy(data<T>(logits) + row * classes, classes, label[row], exps.data());
      total.loss_sum += entropy.loss;
      total.correct += entropy.correct;
    }
    return total;
  });
}

void ReferenceKernels::add(const TensorView& sum, const TensorView& x) const {
  check_apart(DeviceKind::cpu, "add", sum, x);
  with_type(sum.dtype(), [&]<class T>() { loops::add(data<T>(sum), data<T>(x), sum.count()); });
}

std::unique_ptr<Kernels> make_reference_kernels() {
  return std::make_unique<ReferenceKernels>();
}

}  // namespace lockstep::ops
