// The arithmetic of networks on sequences: lookups, layer norm, GELU and attention.
#pragma once

#include <cstdint>

#include <lockstep/core/tensor/tensor.hpp>

#include "models/ops/answer.hpp"

namespace lockstep::ops {

/// y = (x - mean) / sqrt(variance + epsilon) * gain + bias in each row of x, with the mean and the (biased) variance
/// of that row (Ba, Kiros, Hinton: "Layer normalization", 2016).
struct LayerNorm {
  TensorView x;     ///< [rows, width]; also f32 where y is bf16
  TensorView gain;  ///< [width]
  TensorView bias;  ///< [width]
  double epsilon;   ///< positive and finite
  TensorView y;     ///< [rows, width]; overwritten
  /// [rows, 2]: each row's mean and 1 / sqrt(variance + epsilon), for the gradient. Overwritten.
  TensorView moments;
};

struct LayerNormGradient {
  TensorView x;        ///< [rows, width], as in the forward pass; dx is of its type, and dy of that of y
  TensorView gain;     ///< [width]
  TensorView moments;  ///< [rows, 2], from the forward pass
  TensorView dy;       ///< [rows, width]
  TensorView dx;       ///< [rows, width]; overwritten; may be dy if that has its type
  TensorView d_gain;   ///< [width]; overwritten; the sum over the rows, first row first
  TensorView d_bias;   ///< as d_gain
};

/// What attention keeps of each row of scores for its gradient.
enum class KeptScores : std::uint8_t {
  /// Each row's probabilities, [windows, heads, context, context], of qkv's type.
  probabilities,
  /// Each row's logarithm of the sum of e^score over j <= i, [windows, heads, context]; f32 where qkv is bf16. The
  /// gradient computes the scores again, to the same bits, and probabilities as e^(score - log_sum_exp), which differ
  /// from those of the forward pass by about |log_sum_exp| half units in the last place.
  log_sum_exps,
};

inline Shape shape_of(KeptScores kept, std::int64_t windows, std::int64_t heads, std::int64_t context) {
  if (kept == KeptScores::probabilities) return {windows, heads, context, context};
  return {windows, heads, context};
}

/// Attention of each position to itself and those before it, with several heads (Vaswani et al.: "Attention is all you
/// need", 2017). For each window and head, with the queries q, keys k and values v of its positions, [context,
/// head_width] each:
///     probabilities = softmax over j <= i of (q_i . k_j) / sqrt(head_width), zero for j > i;  y = probabilities . v
/// The largest score of a row is subtracted before exponentiation. Rows of qkv and y are positions, window after
/// window, and head_width = width / heads.
struct CausalAttention {
  /// [windows * context, 3 * width]: a position's queries, then keys, then values, each in the order of heads.
  TensorView qkv;
  TensorView kept;  ///< for the gradient, as SequenceKernels::kept_scores says; overwritten
  TensorView y;     ///< [windows * context, width], in the order of heads; overwritten
};

struct CausalAttentionGradient {
  TensorView qkv;      ///< as in the forward pass
  TensorView kept;     ///< from the forward pass
  TensorView dy;       ///< [windows * context, width]
  TensorView d_qkv;    ///< [windows * context, 3 * width]; overwritten
  TensorView scratch;  ///< [heads, context, context]; left with unspecified content
};

/// A family of kernels (Kernels::sequence). The rules of kernels.hpp apply here too. In layer norm and attention a row
/// has the same bits whatever the other rows (windows) hold. In attention a position has the same bits whatever the
/// later positions of its window hold, as long as that is finite: a NaN or an infinity there may make the earlier ones
/// NaN.
class SequenceKernels {
 public:
  virtual ~SequenceKernels() = default;

  /// Row i of rows [n, width] = row indices[i] of table [entries, width], for indices i32 [n]: the lookup of an
  /// embedding. `rows` is overwritten. InvalidArgument for an index outside [0, entries): on the host at once, on a GPU
  /// from the answer; `rows` is not written then.
  virtual Answer<void> gather_rows(const TensorView& table, const TensorView& indices,
                                   const TensorView& rows) const = 0;

  /// The gradient of gather_rows: adds row i of `rows` to row indices[i] of `table`, for i = 0, 1, … in turn.
  /// On the host, InvalidArgument as gather_rows; on a GPU, a bad index adds nothing; gather_rows reports it.
  virtual void scatter_add_rows(const TensorView& rows, const TensorView& indices, const TensorView& table) const = 0;

  virtual void layer_norm(const LayerNorm& operands) const = 0;
  virtual void layer_norm_gradient(const LayerNormGradient& operands) const = 0;

  /// y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))): the tanh form of the Gaussian error linear unit
  /// (Hendrycks, Gimpel: "Gaussian error linear units (GELUs)", 2016), which is GPT-2's. Same shape; y may be x.
  virtual void gelu(const TensorView& x, const TensorView& y) const = 0;

  /// dx = dy times the derivative of gelu at x. Same shape; dx may be dy.
  virtual void gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const = 0;

  /// What causal_attention keeps: probabilities on the host, log_sum_exps on a GPU, where they save memory.
  virtual KeptScores kept_scores() const = 0;
  virtual void causal_attention(const CausalAttention& operands) const = 0;
  virtual void causal_attention_gradient(const CausalAttentionGradient& operands) const = 0;
};

}  // namespace lockstep::ops
