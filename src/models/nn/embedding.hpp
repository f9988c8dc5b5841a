// A layer that turns tokens into vectors, and vectors into logits of tokens.
#pragma once

#include <cstdint>

#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "models/ops/answer.hpp"
#include "models/ops/functions.hpp"

namespace lockstep::nn {

struct EmbeddingOptions {
  std::int64_t vocabulary;
  std::int64_t context;  ///< positions in a window
  std::int64_t width;
  DType dtype = DType::f32;
  double stddev = 0.02;  ///< standard deviation of the initial values
  /// Seeds the initial values, which also depend on how many variables the strategy had before.
  std::uint64_t seed = 0;
  ops::Functions functions = ops::Functions::of_library;  ///< for initial values
};

/// A learned vector for each token and for each position of a window. The logits of tokens use the same token vectors
/// (Press, Wolf: "Using the output embedding to improve language models", 2017). Holds no activations; its caller does.
///
/// Everything but the constructor is LOCAL and needs sealed variables (ContextError). InvalidArgument for operands that
/// do not fit (kernels.hpp), and, on the host before anything is written, for a token outside the vocabulary.
class Embedding {
 public:
  /// COLL. Creates the trainable variables "token_embedding" [vocabulary, width], then "position_embedding" [context,
  /// width], with normal_values. Before that, InvalidArgument for a size below 1 or a dtype other than f32 and f64.
  Embedding(Strategy& strategy, const EmbeddingOptions& options, Here here = Here::current());

  const Variable& tokens() const { return tokens_; }
  const Variable& positions() const { return positions_; }

  /// Overwrites x [windows * context, width] with the sum of each token's vector and its position's, for tokens i32
  /// [windows, context]. The answer says so if a token on a GPU is outside the vocabulary; x is unspecified then.
  ops::Answer<void> forward(const ops::Kernels& kernels, const TensorView& tokens, const TensorView& x) const;

  /// Overwrites logits [rows, vocabulary] with the product of each row of x [rows, width] and each token's vector.
  void forward_logits(const ops::Kernels& kernels, const TensorView& x, const ops::Kernels::Matrix& logits) const;

  /// Call it first in the backward pass. Overwrites the tokens' gradient with the logits' contribution, and dx.
  void backward_logits(const ops::Kernels& kernels, const TensorView& x, const ops::Kernels::Matrix& d_logits,
                       const TensorView& dx, const GradientBuffer& gradients) const;

  /// Adds `forward`'s contribution to the tokens' gradient, in order of position, and overwrites the positions'
  /// gradient.
  void backward(const ops::Kernels& kernels, const TensorView& tokens, const TensorView& dx,
                const GradientBuffer& gradients) const;

 private:
  MirroredVariable tokens_;
  MirroredVariable positions_;
};

}  // namespace lockstep::nn
