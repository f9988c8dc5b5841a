#include "models/ops/reference/sequence_reference.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include "models/ops/gelu.hpp"
#include "models/ops/reference/attention.hpp"
#include "models/ops/reference/loops.hpp"
#include "models/ops/reference/sequence_loops.hpp"
#include "models/ops/reference/stored.hpp"
#include "models/ops/reference/typed.hpp"
#include "models/ops/sequence_checks.hpp"
#include "models/ops/with_type.hpp"

namespace lockstep::ops {
namespace {

/// All indices, once they are known to be rows of the table; only then may their offsets be used.
std::span<const std::int32_t> checked_indices(std::string_view operation, const TensorView& indices,
                                              const TensorView& table) {
  const std::span<const std::int32_t> all = indices.elements<std::int32_t>();
  const auto bad = std::ranges::find_if(all, [&](std::int32_t each) { return each < 0 || each >= table.shape()[0]; });
  if (bad != all.end()) throw index_outside(operation, *bad, bad - all.begin(), table);
  return all;
}

/// c = scale * op(a) · op(b), summed as in matmul.
constexpr auto multiply_blocks = []<class T>(const MatmulSizes& sizes, T scale, const Block<T>& a,
                                             Kernels::Transpose transpose_a, const Block<T>& b,
                                             Kernels::Transpose transpose_b, const Block<T>& c) {
  const bool flip_a = transpose_a == Kernels::Transpose::yes;
  const auto product = [&](const T* rows_of_b, std::int64_t stride) {
    loops::matmul(sizes.m, sizes.n, sizes.k, a.data, flip_a ? 1 : a.stride, flip_a ? a.stride : 1, rows_of_b, stride,
                  c.data, c.stride);
  };
  if (transpose_b == Kernels::Transpose::no)
    product(b.data, b.stride);
  else
    product(loops::transposed(b.data, sizes.n, sizes.k, b.stride).data(), sizes.n);
  for (std::int64_t i = 0; i < sizes.m; ++i)
    for (std::int64_t j = 0; j < sizes.n; ++j) c.data[i * c.stride + j] *= scale;
};

}  // namespace

Answer<void> ReferenceSequenceKernels::gather_rows(const TensorView& table, const TensorView& indices,
                                                   const TensorView& rows) const {
  check_indexed_rows(DeviceKind::cpu, "gather_rows", table, indices, rows, rows);
  const auto all = checked_indices("gather_rows", indices, table);
  with_stored_type(table.dtype(), [&]<class T>() {
    const std::int64_t width = table.shape()[1];
    T* to = data<T>(rows);
    for (const std::int32_t index : all) to = std::copy_n(data<T>(table) + index * width, width, to);
  });
  return {};
}

void ReferenceSequenceKernels::scatter_add_rows(const TensorView& rows, const TensorView& indices,
                                                const TensorView& table) const {
  check_indexed_rows(DeviceKind::cpu, "scatter_add_rows", table, indices, rows, table);
  const auto all = checked_indices("scatter_add_rows", indices, table);
  with_stored_type(rows.dtype(), [&]<class T>() {
    using Sum = detail::computed_t<T>;
    const std::int64_t width = table.shape()[1];
    const T* from = data<T>(rows);
    Computed<T> computed;
    for (const std::int32_t index : all) {
      loops::add(data<Sum>(table) + index * width, computed.read(from, width), width);
      from += width;
    }
  });
}

void ReferenceSequenceKernels::layer_norm(const LayerNorm& operands) const {
  check_layer_norm(DeviceKind::cpu, operands);
  with_stored_types(operands.x.dtype(), operands.y.dtype(), [&]<class X, class Y>() {
    using Number = detail::computed_t<X>;
    const std::int64_t rows = operands.x.shape()[0], width = operands.x.shape()[1];
    Computed<X> x;
    Computed<Y> y;
    for (std::int64_t row = 0; row < rows; ++row) {
      loops::layer_norm_row(x.read(data<X>(operands.x) + row * width, width), data<Number>(operands.gain),
                            data<Number>(operands.bias), static_cast<Number>(operands.epsilon), width,
                            y.write(data<Y>(operands.y) + row * width, width),
                            data<Number>(operands.moments) + 2 * row);
      y.store();
    }
  });
}

void ReferenceSequenceKernels::layer_norm_gradient(const LayerNormGradient& operands) const {
  check_layer_norm(DeviceKind::cpu, operands);
  with_stored_types(operands.x.dtype(), operands.dy.dtype(), [&]<class X, class Y>() {
    using Number = detail::computed_t<X>;
    const std::int64_t rows = operands.x.shape()[0], width = operands.x.shape()[1];
    Number* const d_gain = data<Number>(operands.d_gain);
    Number* const d_bias = data<Number>(operands.d_bias);
    std::fill_n(d_gain, width, Number{});
    std::fill_n(d_bias, width, Number{});
    Computed<X> x, dx;
    Computed<Y> dy;
    for (std::int64_t row = 0; row < rows; ++row) {
      loops::layer_norm_gradient_row(x.read(data<X>(operands.x) + row * width, width), data<Number>(operands.gain),
                                     data<Number>(operands.moments) + 2 * row,
                                     dy.read(data<Y>(operands.dy) + row * width, width), width,
                                     dx.write(data<X>(operands.dx) + row * width, width), d_gain, d_bias);
      dx.store();
    }
  });
}

void ReferenceSequenceKernels::gelu(const TensorView& x, const TensorView& y) const {
  check_same_or_apart(DeviceKind::cpu, "gelu", x, y);
  if (x.dtype() == DType::bf16) {
    const Tensor wide_x = widened(x);
    return rounded(y, [&](const TensorView& to) { gelu(wide_x.view(), to); });
  }
  with_type(x.dtype(), [&]<class T>() {
    with_functions(functions_, [&]<class F>() {
      std::transform(data<T>(x), data<T>(x) + x.count(), data<T>(y), [](T at) { return gelu_of<F>(at); });
    });
  });
}

void ReferenceSequenceKernels::gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const {
  check_gelu_gradient(DeviceKind::cpu, x, dy, dx);
  if (x.dtype() == DType::bf16) {
    const Tensor wide_x = widened(x), wide_dy = widened(dy);
    return rounded(dx, [&](const TensorView& to) { gelu_gradient(wide_x.view(), wide_dy.view(), to); });
  }
  with_type(x.dtype(), [&]<class T>() {
    with_functions(functions_, [&]<class F>() {
      std::transform(data<T>(x), data<T>(x) + x.count(), data<T>(dy), data<T>(dx),
                     [](T at, T gradient) { return gradient * gelu_derivative<F>(at); });
    });
  });
}

void ReferenceSequenceKernels::causal_attention(const CausalAttention& operands) const {
  const AttentionSizes sizes = check_attention(DeviceKind::cpu, kept_scores(), operands);
  with_stored_type(operands.qkv.dtype(), [&]<class T>() {
    with_functions(functions_, [&]<class F>() { attend<F, T>(sizes, operands, Widening{multiply_blocks}); });
  });
}

void ReferenceSequenceKernels::causal_attention_gradient(const CausalAttentionGradient& operands) const {
  const AttentionSizes sizes = check_attention(DeviceKind::cpu, kept_scores(), operands);
  with_stored_type(operands.qkv.dtype(),
                   [&]<class T>() { attend_gradient<T>(sizes, operands, Widening{multiply_blocks}); });
}

}  // namespace lockstep::ops
