#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/nn/convnet.hpp>

#include "shard_checks.hpp"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kernel = 3;

/// Positions along an extent of the images, after the first convolution, the second and the pooling.
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

/// All layers' sizes are looked at before the first one creates a variable.
const ConvnetOptions& checked(const ConvnetOptions& options, const ops::Kernels& kernels) {
  if (options.dtype != DType::f32 && options.dtype != DType::f64)
    throw InvalidArgument{fmt::format("a convnet of {} is not supported; expected f32 or f64", name_of(options.dtype))};
  if (options.height < 0 || options.width < 0 || pooled(options.height) < 1 || pooled(options.width) < 1)
    throw InvalidArgument{
        fmt::format("a convnet for images of {} x {}; expected 6 x 6 or more", options.height, options.width)};
  if (std::min({options.filters[0], options.filters[1], options.hidden, options.classes}) < 1)
    throw InvalidArgument{
        fmt::format("a convnet of {} and {} filters, {} hidden units and {} classes; expected 1 or more of each",
                    options.filters[0], options.filters[1], options.hidden, options.classes)};
  (void)Dropout{{.rate = options.dropout}};
  (void)element_count({options.height, options.width});
  (void)element_count({kernel, kernel, options.filters[0], options.filters[1]});
  (void)element_count({pooled_features(options), options.hidden});
  (void)element_count({options.hidden, options.classes});
  if (!kernels.has_image_kernels())
    throw ConfigError{
        fmt::format("a convnet cannot be computed with the {} kernels, which have no convolutions: "
                    "expected those of the CPU",
                    kernels.name())};
  return options;
}

}  // namespace

Convnet::Convnet(Strategy& strategy, const ConvnetOptions& options, std::shared_ptr<const ops::Kernels> kernels,
                 Here here)
    : options_{checked(options, *kernels)}, kernels_{std::move(kernels)}, stream_{strategy.stream()} {
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

void Convnet::create_stage(Strategy& strategy, std::size_t index, const Here& here) {
  const Conv2dOptions convolution{.name = fmt::format("conv_{}", index),
                                  .inputs = index == 0 ? 1 : options_.filters[0],
                                  .outputs = options_.filters[index],
                                  .kernel = kernel,
                                  .dtype = options_.dtype,
                                  .seed = options_.seed};
  const std::int64_t first_statistic = statistics();
  Stage& stage = stages_.emplace_back(Stage{.convolution = {strategy, convolution, here}});
  variables_.insert(variables_.end(), {stage.convolution.weight(), stage.convolution.bias()});
  if (!options_.batch_norm) return;
  stage.norm.emplace(
      strategy,
      BatchNormOptions{
          .name = fmt::format("batch_norm_{}", index), .channels = options_.filters[index], .dtype = options_.dtype},
      here);
  stage.first_statistic = first_statistic;
  variables_.insert(variables_.end(), {stage.norm->gamma(), stage.norm->beta()});
}

std::int64_t Convnet::statistics() const {
  std::int64_t sum = 0;
  for (const Stage& stage : stages_) sum += stage.norm ? stage.norm->statistics() : 0;
  return sum;
}

ops::CrossEntropy Convnet::train_shard(const SampleBatch& shard, const ShardPlace& place,
                                       const GradientBuffer& gradients) {
  require_shard(shard, {.model = "a convnet", .dtype = options_.dtype, .columns = options_.height * options_.width});
  if (gradients.statistics().shape() != Shape{statistics()})
    throw InvalidArgument{fmt::format("a place {} for the statistics of a convnet, which are [{}]",
                                      describe(gradients.statistics()), statistics())};
  if (shard.samples == 0) {
    for (const Variable& variable : variables_) fill_zero(gradients.of(variable), stream_);
    fill_zero(gradients.statistics(), stream_);
    return {};
  }
  const Pass pass{shard, &place};
  begin(TrainPass::forward);
  forward(pass);
  const TensorView logits = of(pass, workspace_.logits);
  // In the place of the logits, which nobody needs any more: rows of padding become zero.
  const ops::CrossEntropy result = kernels_->softmax_cross_entropy(logits, shard.labels.view(), shard.samples, logits);
  if (options_.batch_norm) copy(workspace_.statistics.view(), gradients.statistics(), stream_);
  begin(TrainPass::backward);
  backward(pass, gradients);
  return result;
}

ops::CrossEntropy Convnet::evaluate_shard(const SampleBatch& shard) {
  require_shard(shard, {.model = "a convnet", .dtype = options_.dtype, .columns = options_.height * options_.width});
  if (shard.samples == 0) return {};
  const Pass pass{shard, nullptr};
  forward(pass);
  return kernels_->softmax_cross_entropy(of(pass, workspace_.logits), shard.labels.view(), shard.samples);
}

void Convnet::absorb_statistics(const TensorView& total, std::int64_t samples) {
  if (total.shape() != Shape{statistics()} || total.dtype() != options_.dtype)
    throw InvalidArgument{fmt::format("statistics {} for a convnet, whose are {}[{}]", describe(total),
                                      name_of(options_.dtype), statistics())};
  if (samples < 0) throw InvalidArgument{fmt::format("statistics of {} samples; expected 0 or more", samples)};
  if (samples == 0) return;
  for (std::size_t index = 0; index < stages_.size(); ++index)
    if (const auto& norm = stages_[index].norm) norm->absorb(*kernels_, statistics_of(index, total), samples);
}

void Convnet::forward(const Pass& pass) {
  reserve(pass.rows());
  forward_stage(0, pass, images(pass), ops::Activation::relu);
  // ReLU comes behind the pooling: what is the largest of four before it is so after it, and there are fewer.
  forward_stage(1, pass, of(pass, workspace_.outputs[0]), ops::Activation::none);
  const TensorView pooled = of(pass, workspace_.pooled);
  kernels_->max_pool(of(pass, workspace_.outputs[1]), pooled);
  kernels_->relu(pooled, pooled);
  drop(0, pass, pooled);
  const TensorView hidden = of(pass, workspace_.hidden);
  dense_[0].forward(*kernels_, pooled.reshaped({pass.rows(), pooled_features(options_)}), ops::Activation::relu,
                    hidden);
  drop(1, pass, hidden);
  dense_[1].forward(*kernels_, hidden, ops::Activation::none, of(pass, workspace_.logits));
}

void Convnet::forward_stage(std::size_t index, const Pass& pass, const TensorView& x, ops::Activation activation) {
  const Stage& stage = stages_[index];
  const TensorView y = of(pass, workspace_.outputs[index]);
  if (!stage.norm) return stage.convolution.forward(*kernels_, x, activation, y);
  const TensorView sums = of(pass, workspace_.sums[index]);
  stage.convolution.forward(*kernels_, x, ops::Activation::none, sums);
  if (pass.place)
    stage.norm->measure(*kernels_, first_rows(sums, pass.shard.samples),
                        statistics_of(index, workspace_.statistics.view()));
  stage.norm->forward(*kernels_, sums, normalisation(index, pass), y);
  if (activation == ops::Activation::relu) kernels_->relu(y, y);
}

void Convnet::drop(std::size_t layer, const Pass& pass, const TensorView& x) {
  if (pass.place && !dropout_.empty())
    dropout_[layer].forward(*kernels_, *pass.place, x, of(pass, workspace_.masks[layer]), x);
}

/// From the last layer, whose output has already given way to its gradient, to the first. What dropout left of ReLU's
/// output is zero where ReLU's was, so it stands for it.
void Convnet::backward(const Pass& pass, const GradientBuffer& gradients) {
  const TensorView d_logits = of(pass, workspace_.logits);
  const TensorView hidden = of(pass, workspace_.hidden), d_hidden = of(pass, workspace_.d_hidden);
  dense_[1].backward(*kernels_, hidden, d_logits, gradients);
  dense_[1].backward_input(*kernels_, d_logits, d_hidden);
  undrop(1, pass, d_hidden);
  kernels_->relu_gradient(hidden, d_hidden, d_hidden);

  const TensorView pooled = of(pass, workspace_.pooled), d_pooled = of(pass, workspace_.d_pooled);
  const Shape flat{pass.rows(), pooled_features(options_)};
  dense_[0].backward(*kernels_, pooled.reshaped(flat), d_hidden, gradients);
  dense_[0].backward_input(*kernels_, d_hidden, d_pooled.reshaped(flat));
  undrop(0, pass, d_pooled);
  kernels_->relu_gradient(pooled, d_pooled, d_pooled);

  const TensorView second = of(pass, workspace_.outputs[1]);
  kernels_->max_pool_gradient(second, d_pooled, second);
  const TensorView first = of(pass, workspace_.outputs[0]), d_first = of(pass, workspace_.d_first);
  backward_stage(1, pass, first, second, gradients);
  stages_[1].convolution.backward_input(*kernels_, second, d_first);
  kernels_->relu_gradient(first, d_first, d_first);
  backward_stage(0, pass, images(pass), d_first, gradients);  // nobody asks for the gradient of the images
}

/// dy gives way to the gradient of the convolution's sums.
void Convnet::backward_stage(std::size_t index, const Pass& pass, const TensorView& x, const TensorView& dy,
                             const GradientBuffer& gradients) {
  const Stage& stage = stages_[index];
  if (stage.norm) {
    const TensorView sums = first_rows(of(pass, workspace_.sums[index]), pass.shard.samples);
    const TensorView d_sums = first_rows(dy, pass.shard.samples);
    const ops::Normalisation by = normalisation(index, pass);
    stage.norm->backward(*kernels_, sums, by, d_sums, gradients);
    // The rows of padding were not among those that the statistics are of: their gradients are zero, and stay so.
    stage.norm->backward_input(*kernels_, sums, by, d_sums, gradients, d_sums);
  }
  stage.convolution.backward(*kernels_, x, dy, gradients);
}

void Convnet::undrop(std::size_t layer, const Pass& pass, const TensorView& dx) {
  if (!dropout_.empty()) dropout_[layer].backward(*kernels_, of(pass, workspace_.masks[layer]), dx, dx);
}

void Convnet::reserve(std::int64_t capacity) {
  if (capacity <= workspace_.capacity) return;
  const auto make = [&](Shape shape) { return Tensor::uninitialised(options_.dtype, std::move(shape), stream_); };
  const auto& [first, second] = options_.filters;
  const Shape of_first{capacity, after_first(options_.height), after_first(options_.width), first};
  const Shape of_second{capacity, after_second(options_.height), after_second(options_.width), second};
  const Shape of_pooled{capacity, pooled(options_.height), pooled(options_.width), second};
  const Shape of_hidden{capacity, options_.hidden};
  Workspace larger{.capacity = capacity,
                   .outputs = {make(of_first), make(of_second)},
                   .pooled = make(of_pooled),
                   .hidden = make(of_hidden),
                   .logits = make({capacity, options_.classes}),
                   .d_first = make(of_first),
                   .d_pooled = make(of_pooled),
                   .d_hidden = make(of_hidden),
                   .statistics = make({statistics()})};
  if (options_.batch_norm) larger.sums = {make(of_first), make(of_second)};
  if (!dropout_.empty()) larger.masks = {make(of_pooled), make(of_hidden)};
  workspace_ = std::move(larger);
}

TensorView Convnet::images(const Pass& pass) const {
  return pass.shard.inputs.view().reshaped({pass.rows(), options_.height, options_.width, 1});
}

TensorView Convnet::of(const Pass& pass, const Tensor& whole) const {
  return first_rows(whole.view(), pass.rows());
}

TensorView Convnet::statistics_of(std::size_t stage, const TensorView& all) const {
  return all.slice(stages_[stage].first_statistic, stages_[stage].norm->statistics());
}

ops::Normalisation Convnet::normalisation(std::size_t stage, const Pass& pass) const {
  const BatchNorm& norm = *stages_[stage].norm;
  if (!pass.place) return norm.by_moving_averages();
  return norm.by(statistics_of(stage, workspace_.statistics.view()), pass.shard.samples);
}

}  // namespace lockstep::nn
