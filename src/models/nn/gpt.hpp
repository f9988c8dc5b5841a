// A byte-level language model in the manner of GPT-2.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/models/nn/models.hpp>

#include "models/nn/embedding.hpp"
#include "models/nn/layer_norm.hpp"
#include "models/nn/transformer_block.hpp"
#include "models/nn/workspace.hpp"

namespace lockstep::nn {

/// The model of make_gpt.
class Gpt final : public Model {
 public:
  /// As make_gpt.
  Gpt(Strategy& strategy, const GptOptions& options, std::shared_ptr<const ops::Kernels> kernels,
      Here here = Here::current());

  const GptOptions& options() const { return options_; }

  std::string_view name() const override { return "gpt"; }
  std::span<const Variable> variables() const override { return variables_; }
  BatchLoss train_shard(const SampleBatch& shard, const ShardPlace& place, const GradientBuffer& gradients) override;
  ops::Answer<BatchLoss> start_shards(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                                      const GradientBuffer& sum) override;
  ops::Answer<BatchLoss> start_shard(const SampleBatch& shard, const ShardPlace& place,
                                     const GradientBuffer& gradients) override;
  std::unique_ptr<Model> make_worker() const override;
  BatchLoss evaluate_shard(const SampleBatch& shard) override;

  /// LOCAL, blocking. For each of `tokens`, the logits of the token after it, as [tokens, vocabulary] row by row.
  /// InvalidArgument unless there are 1 to `context` tokens, and for a token outside the vocabulary.
  std::vector<double> logits_after(std::span<const std::int32_t> tokens);

 private:
  /// What the forward pass leaves for a number of windows, and memory for the backward pass.
  struct Activations {
    TensorView embedded;
    std::vector<TransformerBlock::Activations> blocks;  ///< with Keep::outputs, the same memory but for y
    TensorView normed, moments;
    TensorView logits;  ///< with padding, so that products are fast (Kernels::row_stride)
    TransformerBlock::Scratch scratch;
    TensorView d;  ///< the gradient of the blocks' outputs, then of embedded
  };

  /// What the forward pass leaves of each block: all that the backward pass reads, or the output alone.
  enum class Keep : std::uint8_t { all, outputs };

  /// A worker of `other`.
  explicit Gpt(const Gpt& other);

  void require_fit(const SampleBatch& shard) const;
  void arrange(std::int64_t windows, Keep keep);
  const TensorView& input_of(std::size_t block) const;
  ops::Kernels::Matrix logits_of_tokens() const { return {activations_.logits, options_.vocabulary}; }

  /// From tokens i32 [windows, context] to the logits of the tokens after them. The answer is Embedding's.
  ops::Answer<void> forward(const TensorView& tokens, Keep keep);
  /// From the gradient that has replaced the logits.
  void backward(const TensorView& tokens, const GradientBuffer& gradients);

  GptOptions options_;
  std::shared_ptr<const ops::Kernels> kernels_;
  Stream& stream_;
  Embedding embedding_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm final_norm_;
  std::vector<Variable> variables_;
  Workspace workspace_;
  std::int64_t arranged_windows_ = 0;
  Keep arranged_ = Keep::all;
  Activations activations_;
};

}  // namespace lockstep::nn
