// Calls of causal attention and of its gradient, for tests of kernels.
#pragma once

#include <cstdint>
#include <tuple>

#include "gpu_support.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/sequence_checks.hpp"

namespace lockstep::test {

using ops::AttentionSizes;

/// qkv and y.
inline Operands attention_operands(DType dtype, const AttentionSizes& s) {
  return {ops::noise(dtype, {s.positions(), 3 * s.width()}, 1), ops::filled(dtype, {s.positions(), s.width()}, 9)};
}

/// qkv, dy and d_qkv.
inline Operands gradient_operands(DType dtype, const AttentionSizes& s) {
  return {ops::noise(dtype, {s.positions(), 3 * s.width()}, 1), ops::noise(dtype, {s.positions(), s.width()}, 5),
          ops::filled(dtype, {s.positions(), 3 * s.width()}, 9)};
}

/// Memory of these kernels for what their attention keeps.
inline Tensor memory_to_keep(const ops::Kernels& kernels, DType dtype, const AttentionSizes& s) {
  Stream& stream = kernels.name() == "cuda" ? gpu().stream : Stream::host();
  const ops::KeptScores kept = kernels.sequence().kept_scores();
  return Tensor::uninitialised(kept == ops::KeptScores::probabilities ? dtype : ops::sum_type(dtype),
                               ops::shape_of(kept, s.windows, s.heads, s.context), stream);
}

/// From qkv to y.
inline auto attend(const AttentionSizes& s) {
  return [s](const ops::Kernels& kernels, const Views& views) {
    const Tensor kept = memory_to_keep(kernels, views[0].dtype(), s);
    kernels.sequence().causal_attention({.qkv = views[0], .kept = kept.view(), .y = views[1]});
  };
}

/// From qkv and dy to d_qkv. The kernels use what they kept themselves.
inline auto attend_gradient(const AttentionSizes& s) {
  return [s](const ops::Kernels& kernels, const Views& views) {
    const auto& [qkv, dy, d_qkv] = std::tie(views[0], views[1], views[2]);
    Stream& stream = kernels.name() == "cuda" ? gpu().stream : Stream::host();
    const Tensor kept = memory_to_keep(kernels, qkv.dtype(), s);
    const Tensor y = Tensor::uninitialised(qkv.dtype(), dy.shape(), stream);
    const Tensor scratch = Tensor::uninitialised(qkv.dtype(), {s.heads, s.context, s.context}, stream);
    kernels.sequence().causal_attention({.qkv = qkv, .kept = kept.view(), .y = y.view()});
    kernels.sequence().causal_attention_gradient(
        {.qkv = qkv, .kept = kept.view(), .dy = dy, .d_qkv = d_qkv, .scratch = scratch.view()});
  };
}

}  // namespace lockstep::test
