#include "models/nn/gpt.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_count.hpp"
#include "core/device/stream_spans.hpp"
#include "models/nn/activations.hpp"
#include "models/nn/shard_checks.hpp"
#include "models/nn/vectors.hpp"
#include "models/ops/answer.hpp"
#include "models/ops/inside.hpp"
#include "models/ops/sequence_kernels.hpp"

namespace lockstep::nn {
namespace {

constexpr double stddev = 0.02;

/// Checks all sizes before the first layer creates a variable.
const GptOptions& checked(const GptOptions& options) {
  const auto& [layers, heads, width, context, vocabulary, dtype, seed, precision, recompute] = options;
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InvalidArgument{fmt::format("a gpt of {} is not supported; expected f32 or f64", name_of(dtype))};
  if (std::min({layers, heads, width, context, vocabulary}) < 1 || width % heads != 0)
    throw InvalidArgument{
        fmt::format("a gpt of {} layers, {} heads, width {}, context {} and a vocabulary of {}; expected 1 or more of "
                    "each, and heads that divide the width",
                    layers, heads, width, context, vocabulary)};
  for (const Shape& largest : {Shape{vocabulary, width}, Shape{context, width}, Shape{4, width, width}})
    (void)element_count(largest);  // no overflow
  require_precision("a gpt", dtype, precision);
  return options;
}

std::vector<TransformerBlock> make_blocks(Strategy& strategy, const GptOptions& options, ops::Functions functions,
                                          Here here) {
  std::vector<TransformerBlock> blocks;
  for (std::int64_t layer = 0; layer < options.layers; ++layer)
    blocks.emplace_back(
        strategy,
        TransformerBlockOptions{.name = fmt::format("block_{}", layer),
                                .width = options.width,
                                .heads = options.heads,
                                .dtype = options.dtype,
                                .seed = options.seed,
                                .stddev = stddev,
                                .residual_stddev = stddev / std::sqrt(2 * static_cast<double>(options.layers)),
                                .functions = functions},
        here);
  return blocks;
}

/// `loss`, unless a token is outside the vocabulary.
ops::Answer<ops::Kernels::BatchLoss> after(ops::Answer<void> tokens_known, ops::Answer<ops::Kernels::BatchLoss> loss,
                                           Stream& stream) {
  return {stream, [tokens_known = std::move(tokens_known), loss = std::move(loss)] {
            tokens_known.read();
            return loss.read();
          }};
}

}  // namespace

Gpt::Gpt(Strategy& strategy, const GptOptions& options, std::shared_ptr<const ops::Kernels> kernels, Here here)
    : options_{checked(options)},
      kernels_{std::move(kernels)},
      stream_{strategy.stream()},
      embedding_{strategy,
                 {.vocabulary = options.vocabulary,
                  .context = options.context,
                  .width = options.width,
                  .dtype = options.dtype,
                  .stddev = stddev,
                  .seed = options.seed,
                  .functions = ops::functions_of(*kernels_)},
                 here},
      blocks_{make_blocks(strategy, options, ops::functions_of(*kernels_), here)},
      final_norm_{strategy, {.name = "final_norm", .width = options.width, .dtype = options.dtype}, here},
      workspace_{activation_type(options.dtype, options.precision), stream_} {
  variables_ = {embedding_.tokens(), embedding_.positions()};
  for (const TransformerBlock& block : blocks_) std::ranges::copy(block.variables(), std::back_inserter(variables_));
  variables_.insert(variables_.end(), {final_norm_.gain(), final_norm_.bias()});
}

Gpt::Gpt(const Gpt& other)
    : Model{},
      options_{other.options_},
      kernels_{other.kernels_},
      stream_{other.stream_},
      embedding_{other.embedding_},
      blocks_{other.blocks_},
      final_norm_{other.final_norm_},
      variables_{other.variables_},
      workspace_{activation_type(options_.dtype, options_.precision), stream_} {}

std::unique_ptr<Model> Gpt::make_worker() const {
  return std::unique_ptr<Gpt>{new Gpt{*this}};
}

ops::Kernels::BatchLoss Gpt::train_shard(const SampleBatch& shard, const Model::ShardPlace& place,
                                         const GradientBuffer& gradients) {
  return start_shard(shard, place, gradients).wait();
}

ops::Answer<ops::Kernels::BatchLoss> Gpt::start_shards(const SampleBatch::Group& shards,
                                                       std::span<const Model::ShardPlace> places,
                                                       const GradientBuffer& sum) {
  return start_one_by_one(shards, places, sum);
}

ops::Answer<ops::Kernels::BatchLoss> Gpt::start_shard(const SampleBatch& shard, const Model::ShardPlace&,
                                                      const GradientBuffer& gradients) {
  require_fit(shard);
  if (shard.samples == 0) {
    // The sum of the padding's zeros, whose signs could differ if they were products by zero.
    for (const Variable& variable : variables_) gradients.of(variable).fill_zero(stream_);
    return ops::Kernels::BatchLoss{};
  }
  const TensorView tokens = shard.inputs.view();
  begin(Model::Pass::forward);
  ops::Answer<void> tokens_known = forward(tokens, options_.recompute ? Keep::outputs : Keep::all);
  const ops::Kernels::Matrix logits = logits_of_tokens();
  // Overwrites the logits, which are not needed any more. Rows that do not count become zero.
  ops::Answer<ops::Kernels::BatchLoss> loss = inside(*kernels_).start_softmax_cross_entropy(
      logits, flattened(shard.labels.view()), shard.counted_labels(), logits);
  begin(Model::Pass::backward);
  backward(tokens, gradients);
  return after(std::move(tokens_known), std::move(loss), stream_);
}

ops::Kernels::BatchLoss Gpt::evaluate_shard(const SampleBatch& shard) {
  require_fit(shard);
  if (shard.samples == 0) return {};
  ops::Answer<void> tokens_known = forward(shard.inputs.view(), Keep::outputs);
  ops::Answer<ops::Kernels::BatchLoss> loss = inside(*kernels_).start_softmax_cross_entropy(
      logits_of_tokens(), flattened(shard.labels.view()), shard.counted_labels());
  return after(std::move(tokens_known), std::move(loss), stream_).wait();
}

std::vector<double> Gpt::logits_after(std::span<const std::int32_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < 1 || count > options_.context)
    throw InvalidArgument{fmt::format("{} tokens for a gpt; expected 1 to {}", count, options_.context)};
  // What comes after the tokens does not affect their logits.
  std::vector<std::int32_t> window(tokens.begin(), tokens.end());
  window.resize(static_cast<std::size_t>(options_.context));
  const Tensor input = Tensor::copy_of(Tensor::from(window, {1, options_.context}).view(), stream_);
  forward(input.view(), Keep::outputs).wait();
  // Each row up to its padding.
  const std::int64_t stride = logits_of_tokens().stride();
  const std::vector<double> rows = to_doubles(flattened(logits_of_tokens().view).slice(0, count * stride));
  std::vector<double> all;
  for (std::int64_t token = 0; token < count; ++token)
    std::ranges::copy_n(rows.begin() + token * stride, options_.vocabulary, std::back_inserter(all));
  return all;
}

ops::Answer<void> Gpt::forward(const TensorView& tokens, Keep keep) {
  arrange(tokens.shape()[0], keep);
  LayerSpans spans{stream_, "forward"};
  spans.next("embedding");
  ops::Answer<void> tokens_known = embedding_.forward(*kernels_, tokens, activations_.embedded);
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    spans.next("block", block);
    blocks_[block].forward(*kernels_, input_of(block), activations_.blocks[block]);
  }
  spans.next("logits");
  final_norm_.forward(*kernels_, input_of(blocks_.size()), activations_.normed, activations_.moments);
  embedding_.forward_logits(*kernels_, activations_.normed, logits_of_tokens());
  return tokens_known;
}

void Gpt::backward(const TensorView& tokens, const GradientBuffer& gradients) {
  const TensorView &d = activations_.d, &d_normed = activations_.scratch.d_rows;
  LayerSpans spans{stream_, "backward"};
  spans.next("logits");
  embedding_.backward_logits(*kernels_, activations_.normed, logits_of_tokens(), d_normed, gradients);
  final_norm_.backward(*kernels_, input_of(blocks_.size()), activations_.moments, d_normed, d, gradients);
  for (std::size_t block = blocks_.size(); block-- > 0;) {
    spans.next("block", block);
    // The forward pass ended with the last block.
    if (options_.recompute && block + 1 < blocks_.size())
      blocks_[block].recompute(*kernels_, input_of(block), activations_.blocks[block]);
    blocks_[block].backward(*kernels_, input_of(block), activations_.blocks[block], d, activations_.scratch, gradients);
  }
  spans.next("embedding");
  embedding_.backward(*kernels_, tokens, d, gradients);
}

void Gpt::require_fit(const SampleBatch& shard) const {
  require_shard(
      shard, {.model = "a gpt", .dtype = DType::i32, .columns = options_.context, .labels_of_row = {options_.context}});
}

void Gpt::arrange(std::int64_t windows, Keep keep) {
  if (windows == arranged_windows_ && keep == arranged_) return;
  const Windows shape{windows, options_.context};
  const std::int64_t rows = shape.rows();
  activations_ = workspace_.arrange([&](Workspace& workspace) {
    Activations all;
    all.embedded = workspace.take({rows, options_.width}, options_.dtype);
    for (const TransformerBlock& block : blocks_)
      all.blocks.push_back(keep == Keep::outputs && !all.blocks.empty()
                               ? block.take_activations(workspace, shape, all.blocks.front())
                               : block.take_activations(*kernels_, workspace, shape));
    all.normed = workspace.take({rows, options_.width});
    all.moments = workspace.take({rows, 2}, options_.dtype);
    all.logits = workspace.take({rows, kernels_->row_stride(options_.vocabulary)});
    all.scratch = blocks_.front().take_scratch(workspace, shape);
    all.d = workspace.take({rows, options_.width}, options_.dtype);
    return all;
  });
  arranged_windows_ = windows;
  arranged_ = keep;
}

const TensorView& Gpt::input_of(std::size_t block) const {
  return block == 0 ? activations_.embedded : activations_.blocks[block - 1].y;
}

std::unique_ptr<Model> make_gpt(Strategy& strategy, const GptOptions& options,
                                std::shared_ptr<const ops::Kernels> kernels, Here here) {
  return std::make_unique<Gpt>(strategy, options, std::move(kernels), here);
}

}  // namespace lockstep::nn
