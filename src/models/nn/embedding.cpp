#include "models/nn/embedding.hpp"

#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/element_count.hpp"
#include "models/nn/activations.hpp"
#include "models/nn/initial_values.hpp"
#include "models/nn/layer_checks.hpp"
#include "models/nn/vectors.hpp"
#include "models/ops/sequence_kernels.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::nn {
namespace {

const EmbeddingOptions& checked(const EmbeddingOptions& options) {
  require_float_weights(options.dtype);
  if (options.vocabulary < 1 || options.context < 1 || options.width < 1)
    throw InvalidArgument{fmt::format("an embedding of {} tokens at {} positions, {} wide; expected 1 or more of each",
                                      options.vocabulary, options.context, options.width)};
  (void)element_count({options.vocabulary, options.width});  // no overflow
  (void)element_count({options.context, options.width});
  return options;
}

MirroredVariable create(Strategy& strategy, const EmbeddingOptions& options, const std::string& name,
                        std::int64_t entries, Here here) {
  return strategy.create_variable(
      {.name = name},
      [&] {
        return normal_values(options.dtype, {entries, options.width}, options.stddev, options.seed,
                             inside(strategy.store()).variables().size(), options.functions);
      },
      here);
}

/// Rows of positions as rows of whole windows, each as long as all the positions' vectors.
TensorView by_window(const TensorView& rows, const TensorView& tokens) {
  const std::int64_t windows = tokens.shape()[0];
  return rows.reshaped({windows, tokens.shape()[1] * rows.shape()[1]});
}

}  // namespace

Embedding::Embedding(Strategy& strategy, const EmbeddingOptions& options, Here here)
    : tokens_{create(strategy, checked(options), "token_embedding", options.vocabulary, here)},
      positions_{create(strategy, options, "position_embedding", options.context, here)} {}

ops::Answer<void> Embedding::forward(const ops::Kernels& kernels, const TensorView& tokens, const TensorView& x) const {
  ops::Answer<void> tokens_known = kernels.sequence().gather_rows(weight_for(x, tokens_), flattened(tokens), x);
  kernels.add_bias(by_window(x, tokens), flattened(values_of(positions_)));
  return tokens_known;
}

void Embedding::forward_logits(const ops::Kernels& kernels, const TensorView& x,
                               const ops::Kernels::Matrix& logits) const {
  kernels.matmul(x, ops::Kernels::Transpose::no, weight_for(x, tokens_), ops::Kernels::Transpose::yes, logits);
}

void Embedding::backward_logits(const ops::Kernels& kernels, const TensorView& x, const ops::Kernels::Matrix& d_logits,
                                const TensorView& dx, const GradientBuffer& gradients) const {
  kernels.matmul(d_logits, ops::Kernels::Transpose::yes, x, ops::Kernels::Transpose::no, gradients.of(tokens_));
  kernels.matmul(d_logits, ops::Kernels::Transpose::no, weight_for(d_logits.view, tokens_), ops::Kernels::Transpose::no,
                 dx);
}

void Embedding::backward(const ops::Kernels& kernels, const TensorView& tokens, const TensorView& dx,
                         const GradientBuffer& gradients) const {
  kernels.sequence().scatter_add_rows(dx, flattened(tokens), gradients.of(tokens_));
  gradients.ready(tokens_);
  kernels.sum_rows(by_window(dx, tokens), flattened(gradients.of(positions_)));
  gradients.ready(positions_);
}

}  // namespace lockstep::nn
