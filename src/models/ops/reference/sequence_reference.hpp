// The sequence kernels as plain loops.
#pragma once

#include "models/ops/functions.hpp"
#include "models/ops/sequence_kernels.hpp"

namespace lockstep::ops {

class ReferenceSequenceKernels : public SequenceKernels {
 public:
  explicit ReferenceSequenceKernels(Functions functions) : functions_{functions} {}

  Answer<void> gather_rows(const TensorView& table, const TensorView& indices, const TensorView& rows) const override;
  void scatter_add_rows(const TensorView& rows, const TensorView& indices, const TensorView& table) const override;
  void layer_norm(const LayerNorm& operands) const override;
  void layer_norm_gradient(const LayerNormGradient& operands) const override;
  void gelu(const TensorView& x, const TensorView& y) const override;
  void gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const override;
  KeptScores kept_scores() const override { return KeptScores::probabilities; }
  void causal_attention(const CausalAttention& operands) const override;
  void causal_attention_gradient(const CausalAttentionGradient& operands) const override;

 private:
  Functions functions_;
};

}  // namespace lockstep::ops
