// The convnet: what it is made of, and what it asks of its shards.
#include "models/nn/convnet_network.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_count.hpp"
#include "models/nn/activations.hpp"
#include "models/nn/shard_checks.hpp"
#include "models/ops/image_kernels.hpp"
#include "sync/reduce/declared_sums.hpp"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kernel = 3;

/// Positions along an extent of the images: after the first convolution, the second, and the pooling.
std::int64_t after_first(std::int64_t extent) {
  return extent - kernel + 1;
}
std::int64_t after_second(std::int64_t extent) {
  return after_first(after_first(extent));
}
std::int64_t pooled(std::int64_t extent) {
  return after_second(extent) / 2;
}

std::int64_t pooled_features(const ConvnetOptions& options) {
  return element_count({pooled(options.height), pooled(options.width), options.filters[1]});
}

/// Checks all sizes before the first layer creates a variable.
const ConvnetOptions& checked(const ConvnetOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::f64)
    throw InvalidArgument{fmt::format("a convnet of {} is not supported; expected f32 or f64", name_of(options.dtype))};
  if (options.height < 0 || options.width < 0 || pooled(options.height) < 1 || pooled(options.width) < 1)
    throw InvalidArgument{
        fmt::format("a convnet for images of {} x {}; expected 6 x 6 or more", options.height, options.width)};
  if (options.channels < 1)
    throw InvalidArgument{fmt::format("a convnet for images of {} channels; expected 1 or more", options.channels)};
  if (std::min({options.filters[0], options.filters[1], options.hidden, options.classes}) < 1)
    throw InvalidArgument{
        fmt::format("a convnet of {} and {} filters, {} hidden units and {} classes; expected 1 or more of each",
                    options.filters[0], options.filters[1], options.hidden, options.classes)};
  (void)Dropout{{.rate = options.dropout}};
  (void)element_count({options.height, options.width, options.channels});
  (void)element_count({kernel, kernel, options.channels, options.filters[0]});
  (void)element_count({kernel, kernel, options.filters[0], options.filters[1]});
  (void)element_count({pooled_features(options), options.hidden});
  (void)element_count({options.hidden, options.classes});
  require_precision("a convnet", options.dtype, options.precision);
  return options;
}

}  // namespace

Convnet::Network::Network(const Convnet& model, Strategy& strategy, const ConvnetOptions& options,
                          std::shared_ptr<const ops::Kernels> kernels, Here here)
    : model_{model}, options_{checked(options)}, kernels_{std::move(kernels)}, stream_{strategy.stream()} {
  for (std::size_t index = 0; index < 2; ++index) create_stage(strategy, index, here);
  const std::array<std::int64_t, 3> sizes{pooled_features(options_), options_.hidden, options_.classes};
  for (std::size_t index = 0; index < 2; ++index) {
    dense_.emplace_back(strategy,
                        DenseOptions{.name = fmt::format("dense_{}", index),
                                     .inputs = sizes[index],
                                     .outputs = sizes[index + 1],
                                     .dtype = options_.dtype,
                                     .seed = options_.seed},
                        here);
    variables_.insert(variables_.end(), {dense_.back().weight(), dense_.back().bias()});
    if (options_.dropout > 0)
      dropout_.emplace_back(
          DropoutOptions{.rate = options_.dropout, .seed = options_.seed, .ordinal = static_cast<int>(index)});
  }
}

Convnet::Network::Network(const Convnet& model, const Network& other)
    : model_{model},
      options_{other.options_},
      kernels_{other.kernels_},
      stream_{other.stream_},
      dense_{other.dense_},
      dropout_{other.dropout_},
      variables_{other.variables_} {
  for (std::size_t index = 0; index < other.stages_.size(); ++index) {
    const Stage& stage = other.stages_[index];
    Stage& own = stages_.emplace_back(Stage{.convolution = stage.convolution,
                                            .shard_tree = {options_.dtype, options_.filters[index], stream_},
                                            .norm = stage.norm,
                                            .first_statistic = stage.first_statistic});
    if (own.norm) reserve_sums(own);
  }
}

/// The memory in which its batch norm adds up.
void Convnet::Network::reserve_sums(Stage& stage) {
  stage.statistics = Tensor::zeros(options_.dtype, {stage.norm->statistics()}, stream_);
  stage.d_parameters = Tensor::zeros(options_.dtype, {stage.norm->statistics()}, stream_);
  for (Tensor& each : stage.of_subtrees) each = Tensor::zeros(options_.dtype, {stage.norm->statistics()}, stream_);
}

void Convnet::Network::create_stage(Strategy& strategy, std::size_t index, const Here& here) {
  const std::int64_t filters = options_.filters[index];
  const Conv2dOptions convolution{.name = fmt::format("conv_{}", index),
                                  .inputs = index == 0 ? options_.channels : options_.filters[0],
                                  .outputs = filters,
                                  .kernel = kernel,
                                  .dtype = options_.dtype,
                                  .seed = options_.seed};
  const std::int64_t first_statistic = statistics();
  Stage& stage = stages_.emplace_back(
      Stage{.convolution = {strategy, convolution, here}, .shard_tree = {options_.dtype, filters, stream_}});
  variables_.insert(variables_.end(), {stage.convolution.weight(), stage.convolution.bias()});
  if (options_.batch_norm == ConvnetOptions::BatchNorm::none) return;
  stage.norm.emplace(
      strategy,
      BatchNormOptions{.name = fmt::format("batch_norm_{}", index), .channels = filters, .dtype = options_.dtype},
      here);
  stage.first_statistic = first_statistic;
  reserve_sums(stage);
  variables_.insert(variables_.end(), {stage.norm->gamma(), stage.norm->beta()});
}

std::int64_t Convnet::Network::statistics() const {
  std::int64_t sum = 0;
  for (const Stage& stage : stages_) sum += stage.norm ? stage.norm->statistics() : 0;
  return sum;
}

void Convnet::Network::absorb_statistics(const TensorView& total, std::int64_t samples) {
  if (total.shape() != Shape{statistics()} || total.dtype() != options_.dtype)
    throw InvalidArgument{fmt::format("statistics {} for a convnet, whose are {}[{}]", describe(total),
                                      name_of(options_.dtype), statistics())};
  if (samples < 0) throw InvalidArgument{fmt::format("statistics of {} samples; expected 0 or more", samples)};
  if (samples == 0) return;
  for (std::size_t index = 0; index < stages_.size(); ++index)
    if (const auto& norm = stages_[index].norm) norm->absorb(*kernels_, statistics_of(index, total), samples);
}

std::vector<SyncOnReadVariable> Convnet::Network::moving_averages() const {
  std::vector<SyncOnReadVariable> all;
  for (const Stage& stage : stages_)
    if (const auto& norm = stage.norm) all.insert(all.end(), {norm->moving_mean(), norm->moving_variance()});
  return all;
}

ops::Answer<ops::Kernels::BatchLoss> Convnet::Network::start_shard(const SampleBatch& shard,
                                                                   const Model::ShardPlace& place,
                                                                   const GradientBuffer& gradients) {
  require_trainable(shard, gradients);
  reserve(1, shard.inputs.shape().front());
  return train({.shards = {{shard, activations_.front(), &place, &gradients}}, .samples = shard.samples}).front();
}

/// In the order in which `measure` and `backward_norm` make them.
std::vector<std::int64_t> Convnet::Network::joint_sums() const {
  const auto& [first, second] = options_.filters;
  return {first, first, second, second, 2 * second, 2 * first};
}

JointModel::Losses Convnet::Network::train_jointly(const JointBatch& batch, std::span<const GradientBuffer> gradients,
                                                   DeclaredSums& ranks) {
  require_joint(batch, gradients);
  reserve(gradients.size(), batch.shards.capacity());
  Pass pass{.samples = batch.samples, .subtrees = batch.subtrees, .ranks = &ranks};
  for (std::size_t i = 0; i < gradients.size(); ++i)
    pass.shards.push_back({batch.shards.batches[i], activations_[i], &batch.places[i], &gradients[i]});
  return train(pass);
}

ops::Kernels::BatchLoss Convnet::Network::evaluate_shard(const SampleBatch& shard) {
  require_images(shard);
  reserve(1, shard.inputs.shape().front());
  const Pass pass{.shards = {{shard, activations_.front()}}};
  forward(pass);
  if (shard.samples == 0) return {};
  return kernels_->softmax_cross_entropy(of(pass.shards.front(), activations_.front().logits), shard.labels.view(),
                                         shard.samples);
}

std::vector<double> Convnet::Network::logits(const SampleBatch& batch) {
  require_images(batch);
  if (batch.samples == 0) return {};
  reserve(1, batch.inputs.shape().front());
  const Pass pass{.shards = {{batch, activations_.front()}}};
  forward(pass);
  return to_doubles(first_rows(of(pass.shards.front(), activations_.front().logits), batch.samples));
}

void Convnet::Network::require_images(const SampleBatch& shard) const {
  require_shard(
      shard,
      {.model = "a convnet", .dtype = options_.dtype, .columns = options_.height * options_.width * options_.channels});
}

void Convnet::Network::require_trainable(const SampleBatch& shard, const GradientBuffer& gradients) const {
  require_images(shard);
  if (gradients.statistics().shape() != Shape{statistics()})
    throw InvalidArgument{fmt::format("a place {} for the statistics of a convnet, which are [{}]",
                                      describe(gradients.statistics()), statistics())};
}

void Convnet::Network::require_joint(const JointBatch& batch, std::span<const GradientBuffer> gradients) const {
  const std::vector<SampleBatch>& shards = batch.shards.batches;
  if (shards.empty() || batch.places.size() != shards.size() || gradients.size() != shards.size())
    throw InvalidArgument{fmt::format(
        "{} shards with {} places and {} places for gradients; expected one or more, and one of each for each",
        shards.size(), batch.places.size(), gradients.size())};
  std::int64_t here = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    require_trainable(shards[i], gradients[i]);
    here += shards[i].samples;
  }
  if (batch.samples < here)
    throw InvalidArgument{fmt::format("{} samples on all ranks, of which this one has {}; expected as many or more",
                                      batch.samples, here)};
}

void Convnet::Network::reserve(std::size_t shards, std::int64_t capacity) {
  if (activations_.size() < shards) activations_.resize(shards);
  for (Activations& room : std::span{activations_}.first(shards))
    if (room.capacity < capacity) room = make_activations(capacity);
}

Convnet::Network::Activations Convnet::Network::make_activations(std::int64_t capacity) const {
  const auto make = [&](Shape shape) {
    return Tensor::uninitialised(activation_type(options_.dtype, options_.precision), std::move(shape), stream_);
  };
  const auto make_wide = [&](Shape shape) { return Tensor::uninitialised(options_.dtype, std::move(shape), stream_); };
  const auto& [first, second] = options_.filters;
  const Shape of_first{capacity, after_first(options_.height), after_first(options_.width), first};
  const Shape of_second{capacity, after_second(options_.height), after_second(options_.width), second};
  const Shape of_pooled{capacity, pooled(options_.height), pooled(options_.width), second};
  const Shape of_hidden{capacity, options_.hidden};
  Activations made{.capacity = capacity,
                   .outputs = {make(of_first), make(of_second)},
                   .pooled = make(of_pooled),
                   .hidden = make(of_hidden),
                   .logits = make({capacity, options_.classes}),
                   .d_first = make(of_first),
                   .d_pooled = make(of_pooled),
                   .d_hidden = make(of_hidden),
                   .statistics = make_wide({statistics()})};
  if (options_.batch_norm != ConvnetOptions::BatchNorm::none) made.sums = {make(of_first), make(of_second)};
  if (!dropout_.empty()) made.masks = {make_wide(of_pooled), make_wide(of_hidden)};
  if (options_.precision == Model::Precision::bf16)
    made.images = make({capacity, options_.height, options_.width, options_.channels});
  return made;
}

}  // namespace lockstep::nn
