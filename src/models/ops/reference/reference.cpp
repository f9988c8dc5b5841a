#include "models/ops/reference/reference.hpp"

#include <algorithm>
#include <vector>

#include "models/ops/backends.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/product_tree.hpp"
#include "models/ops/reference/loops.hpp"
#include "models/ops/reference/softmax.hpp"
#include "models/ops/reference/stored.hpp"
#include "models/ops/reference/typed.hpp"
#include "models/ops/with_type.hpp"

namespace lockstep::ops {
namespace {

void check_labels(const Kernels::Matrix& logits, const TensorView& labels, std::int64_t samples) {
  const auto label = labels.elements<std::int32_t>().first(static_cast<std::size_t>(samples));
  const auto bad =
      std::find_if(label.begin(), label.end(), [&](std::int32_t each) { return each < 0 || each >= logits.columns; });
  if (bad != label.end()) throw label_outside(*bad, bad - label.begin(), logits);
}

/// Calls body(c) with f32 memory for a product that is stored as bf16.
void rounded(const Kernels::Matrix& c, auto&& body) {
  const Tensor wide = Tensor::uninitialised(DType::f32, {c.rows(), c.columns});
  body(wide.view());
  for (std::int64_t row = 0; row < c.rows(); ++row)
    detail::round(data<float>(wide.view()) + row * c.columns, data<BFloat16>(c.view) + row * c.stride(), c.columns);
}

template <class T>
loops::RowEntropy<T> entropy_of(Functions functions, const T* x, std::int64_t classes, std::int32_t label, T* exps) {
  return with_functions(functions, [&]<class F>() { return loops::row_entropy<F>(x, classes, label, exps); });
}

void add_elements(std::int64_t count, float* sum, const float* a, const float* b) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

}  // namespace

std::string_view ReferenceKernels::name() const {
  return "reference";
}

std::string ReferenceKernels::fingerprint() const {
  return "reference, portable";
}

bool ReferenceKernels::is_portable() const {
  return functions_ == Functions::portable;
}

void ReferenceKernels::matmul(const Matrix& a, Kernels::Transpose transpose_a, const Matrix& b,
                              Kernels::Transpose transpose_b, const Matrix& c) const {
  const auto [m, n, k] = check_matmul(DeviceKind::cpu, a, transpose_a, b, transpose_b, c);
  if (a.view.dtype() == DType::bf16) {
    const Tensor wide_a = widened(a.view), wide_b = widened(b.view);
    const auto product = [&](const Matrix& to) {
      matmul({wide_a.view(), a.columns}, transpose_a, {wide_b.view(), b.columns}, transpose_b, to);
    };
    return c.view.dtype() == DType::bf16 ? rounded(c, product) : product(c);
  }
  const bool flip_a = transpose_a == Kernels::Transpose::yes;
  const std::int64_t a_row = flip_a ? 1 : a.stride();
  const std::int64_t a_column = flip_a ? a.stride() : 1;
  with_type(c.view.dtype(), [&, m = m, n = n, k = k]<class T>() {
    const auto multiply = [&](const T* rows_of_b, std::int64_t stride) {
      loops::matmul(m, n, k, data<T>(a.view), a_row, a_column, rows_of_b, stride, data<T>(c.view), c.stride());
    };
    if (transpose_b == Kernels::Transpose::no) return multiply(data<T>(b.view), b.stride());
    // A copy of b costs one pass. Reading b by columns would cost a stride in every step, or another order of the sum.
    multiply(loops::transposed(data<T>(b.view), n, k, b.stride()).data(), n);
  });
}

void ReferenceKernels::sum_of_products(std::span<const Kernels::Factors> factors, const TensorView& c) const {
  check_sum_of_products(DeviceKind::cpu, factors, c);
  sum_of_whole_products(*this, factors, c, Stream::host());
}

void ReferenceKernels::linear(const TensorView& x, const TensorView& weight, const TensorView& bias,
                              Kernels::Activation activation, const TensorView& y) const {
  check_linear(DeviceKind::cpu, x, weight, bias, y);
  if (x.dtype() == DType::bf16) {
    const Tensor wide_x = widened(x), wide_weight = widened(weight);
    const auto compute = [&](const TensorView& to) { linear(wide_x.view(), wide_weight.view(), bias, activation, to); };
    return y.dtype() == DType::bf16 ? rounded(y, compute) : compute(y);
  }
  matmul(x, Kernels::Transpose::no, weight, Kernels::Transpose::no, y);
  add_bias(y, bias);
  if (activation == Kernels::Activation::relu) relu(y, y);
}

void ReferenceKernels::add_bias(const TensorView& rows, const TensorView& bias) const {
  check_rows(DeviceKind::cpu, "add_bias", rows, bias);
  const std::int64_t columns = bias.count();
  if (rows.dtype() == DType::bf16) {
    Computed<BFloat16> of_row, of_sum;
    BFloat16* row = data<BFloat16>(rows);
    for (std::int64_t i = 0; i < rows.shape()[0]; ++i, row += columns) {
      add_elements(columns, of_sum.write(row, columns), of_row.read(row, columns), data<float>(bias));
      of_sum.store();
    }
    return;
  }
  with_type(rows.dtype(), [&]<class T>() {
    for (std::int64_t row = 0; row < rows.shape()[0]; ++row)
      loops::add(data<T>(rows) + row * columns, data<T>(bias), columns);
  });
}

void ReferenceKernels::sum_rows(const TensorView& rows, const TensorView& out) const {
  check_rows(DeviceKind::cpu, "sum_rows", rows, out);
  with_stored_type(rows.dtype(), [&]<class T>() {
    using Sum = detail::computed_t<T>;
    const std::int64_t columns = out.count();
    std::fill_n(data<Sum>(out), columns, Sum{});
    Computed<T> computed;
    for (std::int64_t row = 0; row < rows.shape()[0]; ++row)
      loops::add(data<Sum>(out), computed.read(data<T>(rows) + row * columns, columns), columns);
  });
}

void ReferenceKernels::relu(const TensorView& x, const TensorView& y) const {
  check_same_or_apart(DeviceKind::cpu, "relu", x, y);
  with_stored_type(x.dtype(), [&]<class T>() {
    using Number = detail::computed_t<T>;
    const auto body = [](std::int64_t n, Number* to, const Number* from) { loops::relu(from, to, n); };
    map_elements(x.count(), data<T>(y), body, data<T>(x));
  });
}

void ReferenceKernels::relu_gradient(const TensorView& y, const TensorView& dy, const TensorView& dx) const {
  check_same_or_apart(DeviceKind::cpu, "relu_gradient", y, dx);
  check_same_or_apart(DeviceKind::cpu, "relu_gradient", dy, dx);
  with_stored_type(y.dtype(), [&]<class T>() {
    using Number = detail::computed_t<T>;
    const auto body = [](std::int64_t n, Number* to, const Number* result, const Number* gradient) {
      loops::relu_gradient(result, gradient, to, n);
    };
    map_elements(y.count(), data<T>(dx), body, data<T>(y), data<T>(dy));
  });
}

Answer<Kernels::BatchLoss> ReferenceKernels::start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                                         std::int64_t samples,
                                                                         const Matrix& d_logits) const {
  check_cross_entropy(DeviceKind::cpu, logits, labels, samples, d_logits);
  check_labels(logits, labels, samples);
  return with_stored_type(logits.view.dtype(), [&]<class T>() {
    const std::int64_t classes = logits.columns, stride = logits.stride();
    const std::int32_t* const label = data<std::int32_t>(labels);
    Kernels::BatchLoss total;
    Computed<T> of_logits, of_gradient;
    for (std::int64_t row = 0; row < samples; ++row) {
      auto* const d_row = of_gradient.write(data<T>(d_logits.view) + row * stride, classes);
      const auto entropy = entropy_of(functions_, of_logits.read(data<T>(logits.view) + row * stride, classes), classes,
                                      label[row], d_row);
      loops::row_gradient(d_row, classes, label[row], entropy.sum);
      of_gradient.store();
      total.loss_sum += entropy.loss;
      total.correct += entropy.correct;
    }
    std::fill_n(data<T>(d_logits.view) + samples * stride, d_logits.view.count() - samples * stride, T{0});
    return total;
  });
}

Answer<Kernels::BatchLoss> ReferenceKernels::start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                                         std::int64_t samples) const {
  check_cross_entropy(DeviceKind::cpu, logits, labels, samples);
  check_labels(logits, labels, samples);
  return with_stored_type(logits.view.dtype(), [&]<class T>() {
    const std::int64_t classes = logits.columns, stride = logits.stride();
    const std::int32_t* const label = data<std::int32_t>(labels);
    std::vector<detail::computed_t<T>> exps(static_cast<std::size_t>(classes));
    Kernels::BatchLoss total;
    Computed<T> of_logits;
    for (std::int64_t row = 0; row < samples; ++row) {
      const auto entropy = entropy_of(functions_, of_logits.read(data<T>(logits.view) + row * stride, classes), classes,
                                      label[row], exps.data());
      total.loss_sum += entropy.loss;
      total.correct += entropy.correct;
    }
    return total;
  });
}

void ReferenceKernels::add(const TensorView& sum, const TensorView& x) const {
  check_apart(DeviceKind::cpu, "add", sum, x);
  if (sum.dtype() == DType::bf16) {
    return map_elements(sum.count(), data<BFloat16>(sum), add_elements, data<BFloat16>(sum), data<BFloat16>(x));
  }
  with_type(sum.dtype(), [&]<class T>() { loops::add(data<T>(sum), data<T>(x), sum.count()); });
}

void ReferenceKernels::convert(const TensorView& x, const TensorView& y) const {
  check_convert(DeviceKind::cpu, x, y);
  detail::convert(x, y);
}

std::unique_ptr<Kernels> make_reference_kernels() {
  return std::make_unique<ReferenceKernels>(Functions::portable);
}

}  // namespace lockstep::ops
