// Small models of text, and text for them.
#pragma once

#include <memory>

#include "models/input/batches.hpp"
#include "models/nn/gpt.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::nn {

/// Small, with sizes that all differ.
inline GptOptions small_gpt(DType dtype) {
  return {.layers = 2, .heads = 2, .width = 6, .context = 5, .vocabulary = 7, .dtype = dtype, .seed = 3};
}

/// A sealed gpt on a strategy of one replica.
struct GptProgram {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  Gpt model;

  GptProgram(const GptOptions& options, SharedKernels kernels) : model{strategy, options, std::move(kernels)} {
    strategy.seal();
  }
  explicit GptProgram(DType dtype, SharedKernels kernels = reference())
      : GptProgram{small_gpt(dtype), std::move(kernels)} {}

  GradientBuffer buffer() { return {strategy.store(), model.variables()}; }

  /// Noise in all variables, so that no part of the model is too small to be seen.
  void shake() {
    for (std::size_t i = 0; i < model.variables().size(); ++i) fill_noise(model.variables()[i].local(), 100 + i);
  }
};

/// Samples [first, first + samples) of an endless text, in a batch of `capacity` rows. Tokens and labels are drawn on
/// their own: a model need not know that a text's labels are its next bytes.
inline SampleBatch text_from(std::int64_t first, std::int64_t samples, std::int64_t capacity,
                             const GptOptions& options = small_gpt(DType::f64)) {
  SampleBatch batch = make_text_batch(capacity, options.context);
  const auto draw = [&](const Tensor& rows, std::uint64_t ordinal) {
    const RandomStream stream{17, RandomStream::Purpose::initial_value, ordinal};
    const auto tokens = rows.view().elements<std::int32_t>();
    for (std::int64_t i = 0; i < samples * options.context; ++i)
      tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(stream.below(
          static_cast<std::uint64_t>(options.vocabulary), static_cast<std::uint64_t>(first * options.context + i)));
  };
  draw(batch.inputs, 0);
  draw(batch.labels, 1);
  batch.samples = samples;
  return batch;
}

}  // namespace lockstep::nn
