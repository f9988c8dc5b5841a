// Causal self-attention made of products of small matrices. Each backend supplies its own routine for those.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/checks.hpp"
#include "ops/reference/sequence_loops.hpp"
#include "ops/reference/typed.hpp"
#include "ops/sequence_checks.hpp"

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

template <class T>
T score_scale(const AttentionSizes& sizes) {
  return T{1} / std::sqrt(static_cast<T>(sizes.head_width));
}

/// `multiply(sizes, scale, a, transpose_a, b, transpose_b, c)` computes c = scale * op(a) · op(b) on Blocks of T.
template <class T, class Multiply>
void attend(const AttentionSizes& sizes, const CausalAttention& operands, const Multiply& multiply) {
  constexpr auto no = Transpose::no, yes = Transpose::yes;
  const std::int64_t context = sizes.context, width = sizes.head_width;
  for_each_head<T>(sizes, [&](const Head<T>& head) {
    const Block<T> scores = head.scores(operands.probabilities);
    multiply({context, context, width}, score_scale<T>(sizes), head.queries(operands.qkv), no, head.keys(operands.qkv),
             yes, scores);
    for (std::int64_t i = 0; i < context; ++i)
      loops::causal_softmax_row(scores.data + i * scores.stride, i + 1, context);
    multiply({context, width, context}, T{1}, scores, no, head.values(operands.qkv), no, head.columns(operands.y));
  });
}

template <class T, class Multiply>
void attend_gradient(const AttentionSizes& sizes, const CausalAttentionGradient& operands, const Multiply& multiply) {
  constexpr auto no = Transpose::no, yes = Transpose::yes;
  const std::int64_t context = sizes.context, width = sizes.head_width;
  const T scale = score_scale<T>(sizes);
  const Block<T> d_scores{data<T>(operands.scratch), context};
  for_each_head<T>(sizes, [&](const Head<T>& head) {
    const Block<T> probabilities = head.scores(operands.probabilities);
    const Block<T> dy = head.columns(operands.dy);
    multiply({context, width, context}, T{1}, probabilities, yes, dy, no, head.values(operands.d_qkv));
    multiply({context, context, width}, T{1}, dy, no, head.values(operands.qkv), yes, d_scores);
    for (std::int64_t i = 0; i < context; ++i)
      loops::causal_softmax_gradient_row(probabilities.data + i * context, d_scores.data + i * context, i + 1, context);
    multiply({context, width, context}, scale, d_scores, no, head.keys(operands.qkv), no, head.queries(operands.d_qkv));
    multiply({context, width, context}, scale, d_scores, yes, head.queries(operands.qkv), no,
             head.keys(operands.d_qkv));
  });
}

}  // namespace lockstep::ops
