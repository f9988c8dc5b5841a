// Tokens to vectors and back.
#pragma once

#include <cstdint>

#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/strategy/strategy.hpp>

namespace lockstep::nn {

struct EmbeddingOptions {
  std::int64_t vocabulary;
  std::int64_t context;  ///< positions in a window
  std::int64_t width;
  DType dtype = DType::f32;
  double stddev = 0.02;  ///< of the initial values
  /// Of the initial values, which also depend on how many variables the strategy had before.
  std::uint64_t seed = 0;
};

/// A learned vector for each token and for each position of a window, and the logits of tokens by the same vectors
/// (Press, Wolf: "Using the output embedding to improve language models", 2017). Holds no activations: its caller does.
///
/// Everything but the constructor is LOCAL, and requires sealed variables (ContextError). InvalidArgument for operands
/// that do not fit (kernels.hpp), and for a token outside of the vocabulary before anything is written.
class Embedding {
 public:
  /// COLL. Creates the trainable variables "token_embedding" [vocabulary, width], then "position_embedding" [context,
  /// width], with normal_values. Before that, InvalidArgument for a size below 1 or a dtype other than f32 and f64.
  Embedding(Strategy& strategy, const EmbeddingOptions& options, Here here = Here::current());

  const Variable& tokens() const { return tokens_; }
  const Variable& positions() const { return positions_; }

  /// Overwrites x [windows * context, width] with the sum of token's and position's vector, for tokens i32 [windows,
  /// context].
  void forward(const ops::Kernels& kernels, const TensorView& tokens, const TensorView& x) const;

  /// Overwrites logits [rows, vocabulary] with the product of each row of x [rows, width] and each token's vector.
  void forward_logits(const ops::Kernels& kernels, const TensorView& x, const TensorView& logits) const;

  /// Comes first in the backward pass: overwrites the tokens' gradient with its part by the logits, and dx.
  void backward_logits(const ops::Kernels& kernels, const TensorView& x, const TensorView& d_logits,
                       const TensorView& dx, const GradientBuffer& gradients) const;

  /// Adds to the tokens' gradient the part by `forward`, position after position, and overwrites the positions'.
  void backward(const ops::Kernels& kernels, const TensorView& tokens, const TensorView& dx,
                const GradientBuffer& gradients) const;

 private:
  MirroredVariable tokens_;
  MirroredVariable positions_;
};

}  // namespace lockstep::nn
