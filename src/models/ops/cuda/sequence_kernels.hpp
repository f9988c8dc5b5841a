// The kernels for sequences on GPU memory.
#pragma once

#include "core/device/cuda/answers.hpp"
#include "core/device/cuda/scratch.hpp"
#include "core/device/device.hpp"
#include "models/ops/cuda/products.hpp"
#include "models/ops/sequence_kernels.hpp"

namespace lockstep::ops::cuda {

using detail::cuda::Answers;
using detail::cuda::Scratch;

/// Enqueues on `stream`. All four must outlive it.
class CudaSequenceKernels final : public SequenceKernels {
 public:
  CudaSequenceKernels(Stream& stream, const Products& products, const Answers& answers, const Scratch& scratch)
      : stream_{stream}, products_{products}, answers_{answers}, scratch_{scratch} {}

  Answer<void> gather_rows(const TensorView& table, const TensorView& indices, const TensorView& rows) const override;
  void scatter_add_rows(const TensorView& rows, const TensorView& indices, const TensorView& table) const override;
  void layer_norm(const LayerNorm& operands) const override;
  void layer_norm_gradient(const LayerNormGradient& operands) const override;
  void gelu(const TensorView& x, const TensorView& y) const override;
  void gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const override;
  KeptScores kept_scores() const override { return KeptScores::log_sum_exps; }
  void causal_attention(const CausalAttention& operands) const override;
  void causal_attention_gradient(const CausalAttentionGradient& operands) const override;

 private:
  Stream& stream_;
  const Products& products_;
  const Answers& answers_;
  const Scratch& scratch_;
};

}  // namespace lockstep::ops::cuda
