// Calls of causal attention and of its gradient, for tests of kernels.
#pragma once

#include <cstdint>

#include "gpu_support.hpp"
#include "ops/sequence_kernels.hpp"

namespace lockstep::test {

struct AttentionSizes {
  std::int64_t windows, context, heads, head_width;

  std::int64_t positions() const { return windows * context; }
  std::int64_t width() const { return heads * head_width; }
};

/// qkv, probabilities and y.
inline Operands attention_operands(DType dtype, const AttentionSizes& s) {
  return {ops::noise(dtype, {s.positions(), 3 * s.width()}, 1),
          ops::filled(dtype, {s.windows, s.heads, s.context, s.context}, 9),
          ops::filled(dtype, {s.positions(), s.width()}, 9)};
}

inline void attend(const ops::Kernels& kernels, const Views& views) {
  kernels.sequence().causal_attention({.qkv = views[0], .probabilities = views[1], .y = views[2]});
}

/// The operands of the gradient: qkv, probabilities, dy, d_qkv and scratch.
inline Operands gradient_operands(DType dtype, const AttentionSizes& s) {
  Operands forward = after_reference(attention_operands(dtype, s), attend);
  return {forward[0], forward[1], ops::noise(dtype, {s.positions(), s.width()}, 5),
          ops::filled(dtype, {s.positions(), 3 * s.width()}, 9),
          ops::filled(dtype, {s.heads, s.context, s.context}, 0)};
}

inline void attend_gradient(const ops::Kernels& kernels, const Views& views) {
  const Tensor scratch = Tensor::copy_of(views[4], kernels.name() == "cuda" ? gpu().stream : Stream::host());
  kernels.sequence().causal_attention_gradient(
      {.qkv = views[0], .probabilities = views[1], .dy = views[2], .d_qkv = views[3], .scratch = scratch.view()});
}

}  // namespace lockstep::test
