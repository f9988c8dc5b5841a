// A byte-level language model in the manner of GPT-2.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/nn/model.hpp>
#include <lockstep/nn/precision.hpp>
#include <lockstep/nn/transformer_block.hpp>
#include <lockstep/nn/workspace.hpp>

namespace lockstep::nn {

struct GptOptions {
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 128;  ///< length of a position's vector; a multiple of `heads`
  std::int64_t context = 128;
  std::int64_t vocabulary = 256;
  DType dtype = DType::f32;  ///< of the variables: f32 or f64
  std::uint64_t seed = 1;    ///< seeds the initial weights
  Precision precision = Precision::full;
};

/// A decoder-only transformer (Radford et al.: "Language models are unsupervised multitask learners", 2019): learned
/// positions, layer norm before each part of a block, GELU in its tanh form, a final layer norm, and output weights
/// shared with the token embedding. Initial weights are those of GPT-2: normal with a standard deviation of 0.02, and
/// of 0.02 / sqrt(2 * layers) where a product is added to a block's input.
///
/// Takes batches of text (make_text_batch). Losses are sums over tokens, in nats; SampleBatch::counted_labels is what
/// to divide a shard's sum by for the mean. `correct` counts tokens.
class Gpt final : public Model {
 public:
  /// COLL. Creates its variables: the embedding's, "block_0/…", "block_1/…", …, "final_norm/…". Before that,
  /// InvalidArgument for sizes below 1, heads that do not divide the width, a dtype other than f32 and f64, and
  /// f64 under bf16; ConfigError for kernels without those for sequences, or without bf16 if the model is to compute in
  /// it. `strategy` must outlive it; `kernels` are those of its device.
  Gpt(Strategy& strategy, const GptOptions& options, std::shared_ptr<const ops::Kernels> kernels,
      Here here = Here::current());

  const GptOptions& options() const { return options_; }

  std::string_view name() const override { return "gpt"; }
  std::span<const Variable> variables() const override { return variables_; }
  ops::BatchLoss train_shard(const SampleBatch& shard, const ShardPlace& place,
                             const GradientBuffer& gradients) override;
  std::unique_ptr<Model> make_worker() const override;
  ops::BatchLoss evaluate_shard(const SampleBatch& shard) override;

  /// LOCAL, blocking. For each of `tokens`, the logits of the token after it, as [tokens, vocabulary] row by row.
  /// InvalidArgument unless there are 1 to `context` tokens, and for a token outside the vocabulary.
  std::vector<double> logits(std::span<const std::int32_t> tokens);

 private:
  /// What the forward pass leaves for a number of windows, and memory for the backward pass.
  struct Activations {
    TensorView embedded;
    std::vector<TransformerBlock::Activations> blocks;
    TensorView normed, moments;
    TensorView logits;
    TransformerBlock::Scratch scratch;
    TensorView d;  ///< the gradient of the blocks' outputs, then of embedded
  };

  /// A worker of `other`.
  explicit Gpt(const Gpt& other);

  void require_fit(const SampleBatch& shard) const;
  void arrange(std::int64_t windows);
  const TensorView& input_of(std::size_t block) const;

  /// From tokens i32 [windows, context] to the logits of the tokens after them.
  void forward(const TensorView& tokens);
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
  Activations activations_;
};

}  // namespace lockstep::nn
