// Causal self-attention made of products of small matrices. Each backend supplies its own routine for those.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "models/ops/checks.hpp"
#include "models/ops/reference/sequence_loops.hpp"
#include "models/ops/reference/stored.hpp"
#include "models/ops/reference/typed.hpp"
#include "models/ops/sequence_checks.hpp"

namespace lockstep::ops {

/// A matrix inside a larger one. Its rows begin `stride` elements apart.
template <class T>
struct Block {
  T* data;
  std::int64_t stride;
};

/// Where one head of one window lies in memory.
template <class T>
class Head {
 public:
  Head(const AttentionSizes& sizes, std::int64_t window, std::int64_t head)
      : sizes_{sizes}, first_position_{window * sizes.context}, index_{window * sizes.heads + head}, head_{head} {}

  Block<T> queries(const TensorView& qkv) const { return part(qkv, 0); }
  Block<T> keys(const TensorView& qkv) const { return part(qkv, 1); }
  Block<T> values(const TensorView& qkv) const { return part(qkv, 2); }

  /// This head's columns of [positions, width].
  Block<T> columns(const TensorView& rows) const {
    return {data<T>(rows) + first_position_ * sizes_.width() + head_ * sizes_.head_width, sizes_.width()};
  }
  Block<T> scores(const TensorView& all) const {
    return {data<T>(all) + index_ * sizes_.context * sizes_.context, sizes_.context};
  }

 private:
  Block<T> part(const TensorView& qkv, std::int64_t which) const {
    const std::int64_t stride = 3 * sizes_.width();
    return {data<T>(qkv) + first_position_ * stride + which * sizes_.width() + head_ * sizes_.head_width, stride};
  }

  const AttentionSizes& sizes_;
  std::int64_t first_position_;
  std::int64_t index_;
  std::int64_t head_;
};

template <class T, class Fn>
void for_each_head(const AttentionSizes& sizes, Fn&& fn) {
  for (std::int64_t window = 0; window < sizes.windows; ++window)
    for (std::int64_t head = 0; head < sizes.heads; ++head) fn(Head<T>{sizes, window, head});
}

template <class Number>
Number score_scale(const AttentionSizes& sizes) {
  return Number{1} / std::sqrt(static_cast<Number>(sizes.head_width));
}

/// A widened copy of a block, whose rows are adjacent.
class WideBlock {
 public:
  WideBlock(const Block<BFloat16>& block, std::int64_t rows, std::int64_t columns)
      : numbers_(static_cast<std::size_t>(rows * columns)), columns_{columns} {
    for (std::int64_t row = 0; row < rows; ++row)
      detail::widen(block.data + row * block.stride, numbers_.data() + row * columns, columns);
  }

  Block<float> block() { return {numbers_.data(), columns_}; }

 private:
  std::vector<float> numbers_;
  std::int64_t columns_;
};

/// Products of blocks of bf16 by those of f32, which `multiply` computes.
template <class Multiply>
class Widening {
 public:
  explicit Widening(const Multiply& multiply) : multiply_{multiply} {}

  template <class T>
  void operator()(const MatmulSizes& sizes, T scale, const Block<T>& a, Kernels::Transpose transpose_a,
                  const Block<T>& b, Kernels::Transpose transpose_b, const Block<T>& c) const {
    multiply_(sizes, scale, a, transpose_a, b, transpose_b, c);
  }

  void operator()(const MatmulSizes& sizes, float scale, const Block<BFloat16>& a, Kernels::Transpose transpose_a,
                  const Block<BFloat16>& b, Kernels::Transpose transpose_b, const Block<float>& c) const {
    const auto& [m, n, k] = sizes;
    WideBlock wide_a = transpose_a == Kernels::Transpose::yes ? WideBlock{a, k, m} : WideBlock{a, m, k};
    WideBlock wide_b = transpose_b == Kernels::Transpose::yes ? WideBlock{b, n, k} : WideBlock{b, k, n};
    multiply_(sizes, scale, wide_a.block(), transpose_a, wide_b.block(), transpose_b, c);
  }

  void operator()(const MatmulSizes& sizes, float scale, const Block<BFloat16>& a, Kernels::Transpose transpose_a,
                  const Block<BFloat16>& b, Kernels::Transpose transpose_b, const Block<BFloat16>& c) const {
    std::vector<float> product(static_cast<std::size_t>(sizes.m * sizes.n));
    (*this)(sizes, scale, a, transpose_a, b, transpose_b, Block<float>{product.data(), sizes.n});
    for (std::int64_t row = 0; row < sizes.m; ++row)
      detail::round(product.data() + row * sizes.n, c.data + row * c.stride, sizes.n);
  }

 private:
  const Multiply& multiply_;
};

/// Operands are stored as T; scores are computed as detail::computed_t<T>, their softmax with Functions.
///
/// `multiply(sizes, scale, a, transpose_a, b, transpose_b, c)` computes c = scale * op(a) · op(b), where a and b are
/// Blocks of T, and c is one of T or of detail::computed_t<T>.
template <class Functions, class T, class Multiply>
void attend(const AttentionSizes& sizes, const CausalAttention& operands, const Multiply& multiply) {
  using Number = detail::computed_t<T>;
  constexpr auto no = Kernels::Transpose::no, yes = Kernels::Transpose::yes;
  const std::int64_t context = sizes.context, width = sizes.head_width;
  Computed<T> of_scores;
  for_each_head<T>(sizes, [&](const Head<T>& head) {
    const Block<T> probabilities = head.scores(operands.kept);
    const Block<Number> scores{of_scores.write(probabilities.data, context * context), context};
    multiply({context, context, width}, score_scale<Number>(sizes), head.queries(operands.qkv), no,
             head.keys(operands.qkv), yes, scores);
    for (std::int64_t i = 0; i < context; ++i)
      loops::causal_softmax_row<Functions>(scores.data + i * scores.stride, i + 1, context);
    of_scores.store();
    multiply({context, width, context}, Number{1}, probabilities, no, head.values(operands.qkv), no,
             head.columns(operands.y));
  });
}

template <class T, class Multiply>
void attend_gradient(const AttentionSizes& sizes, const CausalAttentionGradient& operands, const Multiply& multiply) {
  using Number = detail::computed_t<T>;
  constexpr auto no = Kernels::Transpose::no, yes = Kernels::Transpose::yes;
  const std::int64_t context = sizes.context, width = sizes.head_width;
  const Number scale = score_scale<Number>(sizes);
  const Block<T> d_scores{data<T>(operands.scratch), context};
  Computed<T> of_probabilities, of_d_scores;
  for_each_head<T>(sizes, [&](const Head<T>& head) {
    const Block<T> probabilities = head.scores(operands.kept);
    const Block<T> dy = head.columns(operands.dy);
    multiply({context, width, context}, Number{1}, probabilities, yes, dy, no, head.values(operands.d_qkv));
    const Block<Number> d{of_d_scores.write(d_scores.data, context * context), context};
    multiply({context, context, width}, Number{1}, dy, no, head.values(operands.qkv), yes, d);
    const Number* const known = of_probabilities.read(probabilities.data, context * context);
    for (std::int64_t i = 0; i < context; ++i)
      loops::causal_softmax_gradient_row(known + i * context, d.data + i * context, i + 1, context);
    of_d_scores.store();
    multiply({context, width, context}, scale, d_scores, no, head.keys(operands.qkv), no, head.queries(operands.d_qkv));
    multiply({context, width, context}, scale, d_scores, yes, head.queries(operands.qkv), no,
             head.keys(operands.d_qkv));
  });
}

}  // namespace lockstep::ops
