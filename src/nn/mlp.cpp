#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/nn/mlp.hpp>

#include "shard_checks.hpp"

namespace lockstep::nn {
namespace {

/// All layers' sizes are looked at before the first one creates a variable.
const MlpOptions& checked(const MlpOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::f64)
    throw InvalidArgument{fmt::format("an mlp of {} is not supported; expected f32 or f64", name_of(options.dtype))};
  if (options.inputs < 1 || options.classes < 1 ||
      std::ranges::any_of(options.hidden, [](std::int64_t size) { return size < 1; }))
    throw InvalidArgument{
        fmt::format("an mlp of {} inputs, hidden layers of [{}] and {} classes; expected 1 or more of each",
                    options.inputs, fmt::join(options.hidden, ", "), options.classes)};
  std::int64_t inputs = options.inputs;
  for (const std::int64_t size : options.hidden) (void)element_count({std::exchange(inputs, size), size});
  (void)element_count({inputs, options.classes});
  return options;
}

}  // namespace

Mlp::Mlp(Strategy& strategy, const MlpOptions& options, std::shared_ptr<const ops::Kernels> kernels, Here here)
    : options_{checked(options)}, kernels_{std::move(kernels)}, stream_{strategy.stream()} {
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

ops::CrossEntropy Mlp::train_shard(const SampleBatch& shard, const ShardPlace&, const GradientBuffer& gradients) {
  require_shard(shard, {.model = "an mlp", .dtype = options_.dtype, .columns = options_.inputs});
  if (shard.samples == 0) {
    // What the padding's zeros would add up to, but for the sign that a product by zero may have.
    for (const Variable& variable : variables_) fill_zero(gradients.of(variable), stream_);
    return {};
  }
  begin(TrainPass::forward);
  forward(shard);
  const TensorView logits = output(layers_.size() - 1, shard.inputs.shape()[0]);
  // In the place of the logits, which nobody needs any more: rows of padding become zero.
  const ops::CrossEntropy result = kernels_->softmax_cross_entropy(logits, shard.labels.view(), shard.samples, logits);
  begin(TrainPass::backward);
  backward(shard, gradients);
  return result;
}

ops::CrossEntropy Mlp::evaluate_shard(const SampleBatch& shard) {
  require_shard(shard, {.model = "an mlp", .dtype = options_.dtype, .columns = options_.inputs});
  if (shard.samples == 0) return {};
  forward(shard);
  const TensorView logits = output(layers_.size() - 1, shard.inputs.shape()[0]);
  return kernels_->softmax_cross_entropy(logits, shard.labels.view(), shard.samples);
}

void Mlp::forward(const SampleBatch& shard) {
  const std::int64_t rows = shard.inputs.shape()[0];
  reserve(rows);
  TensorView x = shard.inputs.view();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const TensorView y = output(layer, rows);
    const bool last = layer + 1 == layers_.size();
    layers_[layer].forward(*kernels_, x, last ? ops::Activation::none : ops::Activation::relu, y);
    x = y;
  }
}

/// From the last layer, whose output has already given way to its gradient, to the first; the others' outputs
/// do so on the way.
void Mlp::backward(const SampleBatch& shard, const GradientBuffer& gradients) {
  const std::int64_t rows = shard.inputs.shape()[0];
  for (std::size_t layer = layers_.size(); layer-- > 0;) {
    const TensorView dy = output(layer, rows);
    const TensorView x = layer > 0 ? output(layer - 1, rows) : shard.inputs.view();
    layers_[layer].backward(*kernels_, x, dy, gradients);
    if (layer == 0) break;  // nobody asks for the gradient of the inputs
    const TensorView dx = d_hidden(rows, x.shape()[1]);
    layers_[layer].backward_input(*kernels_, dy, dx);
    kernels_->relu_gradient(x, dx, x);
  }
}

void Mlp::reserve(std::int64_t capacity) {
  if (capacity <= workspace_.capacity) return;
  Workspace larger{.capacity = capacity};
  std::int64_t widest = 0;
  for (const std::int64_t size : options_.hidden) {
    larger.outputs.push_back(Tensor::zeros(options_.dtype, {capacity, size}, stream_));
    widest = std::max(widest, size);
  }
  larger.outputs.push_back(Tensor::zeros(options_.dtype, {capacity, options_.classes}, stream_));
  larger.d_hidden = Tensor::zeros(options_.dtype, {capacity, widest}, stream_);
  workspace_ = std::move(larger);
}

TensorView Mlp::output(std::size_t layer, std::int64_t rows) const {
  return first_rows(workspace_.outputs[layer].view(), rows);
}

TensorView Mlp::d_hidden(std::int64_t rows, std::int64_t columns) const {
  const Tensor& whole = workspace_.d_hidden;
  return whole.view().reshaped({whole.count()}).slice(0, rows * columns).reshaped({rows, columns});
}

}  // namespace lockstep::nn
