#include "models/nn/mlp.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_count.hpp"
#include "core/device/stream_spans.hpp"
#include "models/nn/activations.hpp"
#include "models/nn/shard_checks.hpp"
#include "models/nn/shard_plan.hpp"
#include "models/nn/shard_sums.hpp"
#include "models/ops/inside.hpp"

namespace lockstep::nn {
namespace {

/// Checks all sizes before the first layer creates a variable.
const MlpOptions& checked(const MlpOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::f64)
    throw InvalidArgument{fmt::format("an mlp of {} is not supported; expected f32 or f64", name_of(options.dtype))};
  if (options.inputs < 1 || options.classes < 1 ||
      std::ranges::any_of(options.hidden, [](std::int64_t size) { return size < 1; }))
    throw InvalidArgument{
        fmt::format("an mlp of {} inputs, hidden layers of [{}] and {} classes; expected 1 or more of each",
                    options.inputs, fmt::join(options.hidden, ", "), options.classes)};
  require_precision("an mlp", options.dtype, options.precision);
  if (options.loss == MlpOptions::Loss::squared_error && options.classes != 1)
    throw InvalidArgument{fmt::format("an mlp of {} outputs for a squared error; expected 1", options.classes)};
  std::int64_t inputs = options.inputs;
  for (const std::int64_t size : options.hidden) (void)element_count({std::exchange(inputs, size), size});
  (void)element_count({inputs, options.classes});
  return options;
}

std::vector<ops::DenseForm> forms_of(const MlpOptions& options) {
  std::vector<ops::DenseForm> forms;
  const DType dtype = activation_type(options.dtype, options.precision);
  std::int64_t inputs = options.inputs;
  for (const std::int64_t size : options.hidden)
    forms.push_back({std::exchange(inputs, size), size, ops::Kernels::Activation::relu, dtype});
  forms.push_back({inputs, options.classes, ops::Kernels::Activation::none, dtype});
  return forms;
}

ops::RowBlocks rows_of(const SampleBatch::Group& shards) {
  return {.rows = shards.capacity(), .blocks = std::ssize(shards.batches)};
}

/// The rows of shard `index` in a view of the rows of all shards.
TensorView part(const TensorView& all, const SampleBatch::Group& shards, std::size_t index) {
  return rows_from(all, static_cast<std::int64_t>(index) * shards.capacity(), shards.capacity());
}

template <class Narrow>
Tensor rounded(const std::vector<double>& values, const Shape& shape) {
  std::vector<Narrow> elements;
  for (const double value : values) elements.emplace_back(static_cast<float>(value));
  return Tensor::from(elements, shape);
}

/// Copies `values` into `view`, which has as many elements of f32, f64 or bf16.
void write(const std::vector<double>& values, const TensorView& view, Stream& stream) {
  const Tensor source = view.dtype() == DType::f64   ? Tensor::from(values, view.shape())
                        : view.dtype() == DType::f32 ? rounded<float>(values, view.shape())
                                                     : rounded<BFloat16>(values, view.shape());
  copy(source.view(), view, stream);
  stream.synchronize();  // before the source is gone
}

std::vector<double> labels_of(const SampleBatch& shard) {
  return to_doubles(first_rows(shard.labels.view(), shard.samples));
}

/// Blocking. Of outputs [rows, 1] and the labels of `shard`, [rows] of f32 or f64: the sum of (output - label)^2 over
/// the samples present, with their residuals. Computed in double on the host, sample after sample, whatever the device:
/// they are few numbers.
ops::Kernels::BatchLoss squared_error(const TensorView& outputs, const SampleBatch& shard) {
  const std::vector<double> predicted = to_doubles(first_rows(outputs, shard.samples)), labels = labels_of(shard);
  ops::Kernels::BatchLoss result{.residuals = ops::Kernels::BatchLoss::Residuals{}};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double error = predicted[i] - labels[i];
    result.loss_sum += error * error;
    result.residuals->absolute += std::abs(error);
    result.residuals->labels += labels[i];
    result.residuals->squares += labels[i] * labels[i];
  }
  return result;
}

/// The same without residuals. Overwrites the outputs by the gradient of that sum: 2 (output - label), and zero in the
/// rows of padding. `stream` is that of their device.
ops::Kernels::BatchLoss squared_error_with_gradient(const TensorView& outputs, const SampleBatch& shard,
                                                    Stream& stream) {
  std::vector<double> gradient = to_doubles(first_rows(outputs, shard.samples));
  const std::vector<double> labels = labels_of(shard);
  ops::Kernels::BatchLoss result;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double error = gradient[i] - labels[i];
    result.loss_sum += error * error;
    gradient[i] = 2 * error;
  }
  gradient.resize(static_cast<std::size_t>(outputs.count()));
  write(gradient, outputs, stream);
  return result;
}

}  // namespace

struct Mlp::Shards {
  LayerPlans plans;
  ShardSums gradients;
};

Mlp::Mlp(const MlpOptions& options, std::shared_ptr<const ops::Kernels> kernels, Stream& stream)
    : options_{checked(options)},
      kernels_{std::move(kernels)},
      stream_{stream},
      shards_{new Shards{LayerPlans{kernels_, forms_of(options_), stream_}}} {}

Mlp::Mlp(Strategy& strategy, const MlpOptions& options, std::shared_ptr<const ops::Kernels> kernels, Here here)
    : Mlp{options, std::move(kernels), strategy.stream()} {
  std::vector<std::int64_t> sizes = options_.hidden;
  sizes.push_back(options_.classes);
  std::int64_t inputs = options_.inputs;
  for (std::size_t layer = 0; layer < sizes.size(); ++layer) {
    layers_.emplace_back(strategy,
                         DenseOptions{.name = fmt::format("dense_{}", layer),
                                      .inputs = inputs,
                                      .outputs = sizes[layer],
                                      .dtype = options_.dtype,
                                      .seed = options_.seed},
                         here);
    variables_.push_back(layers_.back().weight());
    variables_.push_back(layers_.back().bias());
    inputs = sizes[layer];
  }
}

Mlp::~Mlp() = default;

std::unique_ptr<Model> Mlp::make_worker() const {
  std::unique_ptr<Mlp> worker{new Mlp{options_, kernels_, stream_}};
  worker->layers_ = layers_;
  worker->variables_ = variables_;
  return worker;
}

ops::Kernels::BatchLoss Mlp::train_shard(const SampleBatch& shard, const Model::ShardPlace& place,
                                         const GradientBuffer& gradients) {
  return train_shards({shard.inputs, shard.labels, {shard}}, {&place, 1}, gradients);
}

ops::Kernels::BatchLoss Mlp::train_shards(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places,
                                          const GradientBuffer& sum) {
  return start_shards(shards, places, sum).wait();
}

ops::Answer<ops::Kernels::BatchLoss> Mlp::start_shards(const SampleBatch::Group& shards,
                                                       std::span<const Model::ShardPlace> places,
                                                       const GradientBuffer& sum) {
  return {stream_, [losses = pass(shards, places, sum, nullptr)] { return losses.read(); }};
}

ops::Kernels::BatchLoss Mlp::train_watched(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places,
                                           const GradientBuffer& sum, ShardWatch& watch) {
  return pass(shards, places, sum, &watch).read_shown_to(watch, stream_);
}

ShardLosses Mlp::pass(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places,
                      const GradientBuffer& sum, ShardWatch* watch) {
  require_places(shards, places);
  for (const SampleBatch& shard : shards.batches) require(shard);
  begin(Model::Pass::forward);
  forward(shards.inputs.view(), std::ssize(shards.batches));
  ShardLosses result = losses(shards);
  begin(Model::Pass::backward);
  backward(shards, sum, watch);
  return result;
}

ops::Kernels::BatchLoss Mlp::evaluate_shard(const SampleBatch& shard) {
  require(shard);
  if (shard.samples == 0) return {};
  forward(shard.inputs.view(), 1);
  const TensorView outputs = output(layers_.size() - 1, shard.inputs.shape()[0]);
  if (options_.loss == MlpOptions::Loss::squared_error) return squared_error(outputs, shard);
  return kernels_->softmax_cross_entropy(outputs, shard.labels.view(), shard.samples);
}

std::vector<double> Mlp::logits(const SampleBatch& batch) {
  require(batch);
  if (batch.samples == 0) return {};
  forward(batch.inputs.view(), 1);
  return to_doubles(output(layers_.size() - 1, batch.samples));
}

void Mlp::require(const SampleBatch& shard) const {
  const DType labels = options_.loss == MlpOptions::Loss::squared_error ? options_.dtype : DType::i32;
  require_shard(shard,
                {.model = "an mlp", .dtype = options_.dtype, .columns = options_.inputs, .labels_dtype = labels});
}

void Mlp::forward(const TensorView& inputs, std::int64_t shards) {
  const std::int64_t all_rows = inputs.shape()[0];
  const ops::RowBlocks blocks{.rows = all_rows / shards, .blocks = shards};
  const auto plans = shards_->plans.of(blocks);
  reserve(all_rows);
  LayerSpans spans{stream_, "forward"};
  TensorView x = rounded(inputs);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    spans.next("dense", layer);
    const TensorView y = output(layer, all_rows);
    const auto activation =
        layer + 1 == layers_.size() ? ops::Kernels::Activation::none : ops::Kernels::Activation::relu;
    for_rows(plans[layer].forward_at_once, blocks, [&](std::int64_t first, std::int64_t rows) {
      layers_[layer].forward(*kernels_, rows_from(x, first, rows), activation, rows_from(y, first, rows));
    });
    x = y;
  }
}

ShardLosses Mlp::losses(const SampleBatch::Group& shards) {
  const TensorView outputs = output(layers_.size() - 1, rows_of(shards).all_rows());
  ShardLosses losses;
  for (std::size_t i = 0; i < shards.batches.size(); ++i) {
    const SampleBatch& shard = shards.batches[i];
    // Overwrites the outputs, which are not needed any more. Rows of padding become zero.
    const TensorView own = part(outputs, shards, i);
    losses.push(static_cast<std::int64_t>(i),
                options_.loss == MlpOptions::Loss::squared_error
                    ? squared_error_with_gradient(own, shard, stream_)
                    : inside(*kernels_).start_softmax_cross_entropy(own, shard.labels.view(), shard.samples, own),
                shard.counted_labels());
  }
  return losses;
}

/// From the last layer, whose output has already been overwritten by its gradient, to the first. The outputs of the
/// others are overwritten on the way.
void Mlp::backward(const SampleBatch::Group& shards, const GradientBuffer& sum, ShardWatch* watch) {
  const ops::RowBlocks blocks = rows_of(shards);
  LayerSpans spans{stream_, "backward"};
  shards_->gradients.begin(sum, blocks.blocks, watch);
  const auto plans = shards_->plans.of(blocks);
  const auto plans_of_sums = shards_->plans.of({.rows = blocks.rows, .blocks = shards_->gradients.added()});
  for (std::size_t layer = layers_.size(); layer-- > 0;) {
    spans.next("dense", layer);
    const TensorView dy = output(layer, blocks.all_rows());
    const TensorView x = layer > 0 ? output(layer - 1, blocks.all_rows()) : inputs_of(shards);
    add_up_gradients(layer, shards, x, dy,
                     plans_of_sums[layer].weight_gradients_at_once && shards_->gradients.can_be_at_once());
    if (layer == 0) break;  // nobody needs the gradient of the inputs
    const TensorView dx = d_hidden(blocks.all_rows(), x.shape()[1]);
    for_rows(plans[layer].input_gradients_at_once, blocks, [&](std::int64_t first, std::int64_t rows) {
      layers_[layer].backward_input(*kernels_, rows_from(dy, first, rows), rows_from(dx, first, rows));
    });
    kernels_->relu_gradient(x, dx, x);
  }
}

void Mlp::add_up_gradients(std::size_t layer, const SampleBatch::Group& shards, const TensorView& x,
                           const TensorView& dy, bool at_once) {
  const Dense& dense = layers_[layer];
  ShardSums& sums = shards_->gradients;
  std::vector<ops::Kernels::Factors> factors;
  for (std::size_t i = 0; i < shards.batches.size(); ++i) {
    // No rows of a shard without samples: the zeros of its padding might give zeros of the other sign.
    const std::int64_t rows = shards.batches[i].samples > 0 ? shards.capacity() : 0;
    const auto shard = static_cast<std::int64_t>(i);
    const TensorView own_x = first_rows(part(x, shards, i), rows), own_dy = first_rows(part(dy, shards, i), rows);
    const GradientBuffer gradients = sums.of_shard(shard);
    dense.bias_gradient(*kernels_, own_dy, gradients);
    if (at_once) {
      factors.push_back({own_x, own_dy, sums.shown_of(shard, dense.weight()), sums.is_audited(shard)});
    } else {
      dense.weight_gradient(*kernels_, own_x, own_dy, gradients);
    }
  }
  if (!at_once) return;
  dense.weight_gradient(*kernels_, factors, sums.sum_of(dense.weight()));
  sums.sum_is_ready(dense.weight());
}

void Mlp::reserve(std::int64_t rows) {
  if (rows <= workspace_.rows) return;
  Workspace larger{.rows = rows};
  std::int64_t widest = 0;
  for (const std::int64_t size : options_.hidden) {
    larger.outputs.push_back(Tensor::zeros(activation_type(), {rows, size}, stream_));
    widest = std::max(widest, size);
  }
  larger.outputs.push_back(Tensor::zeros(activation_type(), {rows, options_.classes}, stream_));
  larger.d_hidden = Tensor::zeros(activation_type(), {rows, widest}, stream_);
  if (options_.precision == Model::Precision::bf16)
    larger.inputs = Tensor::zeros(activation_type(), {rows, options_.inputs}, stream_);
  workspace_ = std::move(larger);
}

DType Mlp::activation_type() const {
  return nn::activation_type(options_.dtype, options_.precision);
}

TensorView Mlp::rounded(const TensorView& inputs) {
  if (options_.precision == Model::Precision::full) return inputs;
  const TensorView rows = first_rows(workspace_.inputs.view(), inputs.shape()[0]);
  kernels_->convert(inputs, rows);
  return rows;
}

/// After the forward pass.
TensorView Mlp::inputs_of(const SampleBatch::Group& shards) const {
  if (options_.precision == Model::Precision::full) return shards.inputs.view();
  return first_rows(workspace_.inputs.view(), shards.inputs.view().shape()[0]);
}

TensorView Mlp::output(std::size_t layer, std::int64_t rows) const {
  return first_rows(workspace_.outputs[layer].view(), rows);
}

TensorView Mlp::d_hidden(std::int64_t rows, std::int64_t columns) const {
  const Tensor& whole = workspace_.d_hidden;
  return whole.view().reshaped({whole.count()}).slice(0, rows * columns).reshaped({rows, columns});
}

std::unique_ptr<Model> make_mlp(Strategy& strategy, const MlpOptions& options,
                                std::shared_ptr<const ops::Kernels> kernels, Here here) {
  return std::make_unique<Mlp>(strategy, options, std::move(kernels), here);
}

}  // namespace lockstep::nn
