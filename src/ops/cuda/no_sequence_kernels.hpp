// Sequence kernels of a GPU. There are none yet, so each refuses.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/ops/sequence_kernels.hpp>

namespace lockstep::ops::cuda {

class NoSequenceKernels : public virtual SequenceKernels {
 public:
  bool has_sequence_kernels() const override { return false; }
  void gather_rows(const TensorView&, const TensorView&, const TensorView&) const override { refuse("gather_rows"); }
  void scatter_add_rows(const TensorView&, const TensorView&, const TensorView&) const override {
    refuse("scatter_add_rows");
  }
  void layer_norm(const LayerNorm&) const override { refuse("layer_norm"); }
  void layer_norm_gradient(const LayerNormGradient&) const override { refuse("layer_norm_gradient"); }
  void gelu(const TensorView&, const TensorView&) const override { refuse("gelu"); }
  void gelu_gradient(const TensorView&, const TensorView&, const TensorView&) const override {
    refuse("gelu_gradient");
  }
  void causal_attention(const CausalAttention&) const override { refuse("causal_attention"); }
  void causal_attention_gradient(const CausalAttentionGradient&) const override { refuse("causal_attention_gradient"); }

 private:
  [[noreturn]] static void refuse(std::string_view operation) {
    throw ConfigError{fmt::format("{}: a GPU has no kernels for sequences: expected the CPU's", operation)};
  }
};

}  // namespace lockstep::ops::cuda
