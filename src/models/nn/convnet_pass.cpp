// The passes of the convnet, layer by layer with all shards side by side: shards that are normalised together meet at
// every batch norm. A single shard goes the same way.

#include <utility>

#include "core/device/stream_spans.hpp"
#include "models/nn/convnet_network.hpp"
#include "models/nn/shard_checks.hpp"
#include "models/ops/image_kernels.hpp"
#include "models/ops/inside.hpp"
#include "sync/reduce/declared_sums.hpp"

namespace lockstep::nn {
namespace {

/// Calls `work` with each shard that has samples. A shard without samples is +0.0 everywhere, and only the sums over
/// shards see it.
void for_each_shard(const auto& pass, auto&& work) {
  for (const auto& shard : pass.shards)
    if (shard.batch.samples > 0) work(shard);
}

/// Each image as one row of its positions and channels, as a dense layer takes it.
TensorView as_rows(const TensorView& images) {
  const std::int64_t rows = images.shape().front();
  return images.reshaped({rows, images.count() / rows});
}

}  // namespace

JointModel::Losses Convnet::Network::train(const Pass& pass) {
  clear_empty_shards(pass);
  model_.begin(Model::Pass::forward);
  forward(pass);
  Losses losses;
  for (const Shard& shard : pass.shards) {
    const SampleBatch& batch = shard.batch;
    // Overwrites the logits, which are not needed any more. Rows of padding become zero.
    const TensorView logits = of(shard, shard.room.logits);
    losses.push_back(batch.samples == 0 ? ops::Kernels::BatchLoss{}
                                        : inside(*kernels_).start_softmax_cross_entropy(logits, batch.labels.view(),
                                                                                        batch.samples, logits));
  }
  if (statistics() > 0)
    for (const Shard& shard : pass.shards) copy(shard.room.statistics.view(), shard.gradients->statistics(), stream_);
  model_.begin(Model::Pass::backward);
  backward(pass);
  return losses;
}

void Convnet::Network::clear_empty_shards(const Pass& pass) const {
  for (const Shard& shard : pass.shards) {
    if (shard.batch.samples > 0) continue;
    for (const Variable& variable : variables_) shard.gradients->of(variable).fill_zero(stream_);
    shard.room.statistics.view().fill_zero(stream_);
  }
}

void Convnet::Network::round_images(const Pass& pass) const {
  if (options_.precision == Model::Precision::full) return;
  for_each_shard(pass, [&](const Shard& shard) {
    const TensorView rounded = images(shard);
    kernels_->convert(shard.batch.inputs.view().reshaped(rounded.shape()), rounded);
  });
}

void Convnet::Network::forward(const Pass& pass) {
  LayerSpans spans{stream_, "forward"};
  round_images(pass);
  spans.next("conv", 0);
  forward_stage(0, pass, ops::Kernels::Activation::relu);
  // ReLU comes after the pooling: the largest of four is still the largest after ReLU, and fewer elements are left.
  spans.next("conv", 1);
  forward_stage(1, pass, ops::Kernels::Activation::none);
  spans.next("dense");
  for_each_shard(pass, [&](const Shard& shard) { forward_head(shard); });
}

void Convnet::Network::forward_stage(std::size_t index, const Pass& pass, ops::Kernels::Activation activation) {
  const Stage& stage = stages_[index];
  if (!stage.norm)
    return for_each_shard(pass, [&](const Shard& shard) {
      stage.convolution.forward(*kernels_, input_of(index, shard), activation, of(shard, shard.room.outputs[index]));
    });
  for_each_shard(pass, [&](const Shard& shard) {
    stage.convolution.forward(*kernels_, input_of(index, shard), ops::Kernels::Activation::none,
                              of(shard, shard.room.sums[index]));
  });
  if (pass.is_training()) measure(index, pass);
  const ops::Normalisation by = normalisation(index, pass);
  for_each_shard(pass, [&](const Shard& shard) {
    const TensorView y = of(shard, shard.room.outputs[index]);
    stage.norm->forward(*kernels_, of(shard, shard.room.sums[index]), by, y);
    if (activation == ops::Kernels::Activation::relu) kernels_->relu(y, y);
  });
}

/// First the means of all shards, then the squares around them. Summing x^2 and subtracting the squared mean would lose
/// the variance to rounding where the mean is large.
void Convnet::Network::measure(std::size_t index, const Pass& pass) {
  Stage& stage = stages_[index];
  const BatchNorm& norm = *stage.norm;
  const TensorView all = stage.statistics.view();
  const auto of_shard = [&](const Shard& shard) { return statistics_of(index, shard.room.statistics.view()); };
  for_each_shard(
      pass, [&](const Shard& shard) { norm.measure_means(*kernels_, sums_of_samples(index, shard), of_shard(shard)); });
  sum_up(stage, pass, {[&](const Shard& shard) { return norm.means(of_shard(shard)); }}, norm.means(all));
  for_each_shard(pass, [&](const Shard& shard) {
    norm.measure_variances(*kernels_, sums_of_samples(index, shard), normalisation(index, pass), of_shard(shard));
  });
  sum_up(stage, pass, {[&](const Shard& shard) { return norm.variances(of_shard(shard)); }}, norm.variances(all));
}

void Convnet::Network::forward_head(const Shard& shard) {
  const TensorView pooled = of(shard, shard.room.pooled), hidden = of(shard, shard.room.hidden);
  kernels_->image().max_pool(of(shard, shard.room.outputs[1]), pooled);
  kernels_->relu(pooled, pooled);
  drop(0, shard, pooled);
  dense_[0].forward(*kernels_, as_rows(pooled), ops::Kernels::Activation::relu, hidden);
  drop(1, shard, hidden);
  dense_[1].forward(*kernels_, hidden, ops::Kernels::Activation::none, of(shard, shard.room.logits));
}

void Convnet::Network::drop(std::size_t layer, const Shard& shard, const TensorView& x) {
  if (shard.place && !dropout_.empty())
    dropout_[layer].forward(*kernels_, *shard.place, x, of(shard, shard.room.masks[layer]), x);
}

/// From the last layer, whose output has already been overwritten by its gradient, to the first.
void Convnet::Network::backward(const Pass& pass) {
  LayerSpans spans{stream_, "backward"};
  spans.next("dense");
  for_each_shard(pass, [&](const Shard& shard) { backward_head(shard); });
  spans.next("conv", 1);
  backward_stage(1, pass);
  for_each_shard(pass, [&](const Shard& shard) {
    const TensorView first = of(shard, shard.room.outputs[0]), d_first = d_output_of(0, shard);
    stages_[1].convolution.backward_input(*kernels_, d_output_of(1, shard), d_first);
    kernels_->relu_gradient(first, d_first, d_first);
  });
  spans.next("conv", 0);
  backward_stage(0, pass);  // nobody needs the gradient of the images
}

/// After dropout the output of ReLU is still zero wherever it was before, so it serves for ReLU's gradient.
void Convnet::Network::backward_head(const Shard& shard) {
  const TensorView d_logits = of(shard, shard.room.logits);
  const TensorView hidden = of(shard, shard.room.hidden), d_hidden = of(shard, shard.room.d_hidden);
  dense_[1].backward(*kernels_, hidden, d_logits, *shard.gradients);
  dense_[1].backward_input(*kernels_, d_logits, d_hidden);
  undrop(1, shard, d_hidden);
  kernels_->relu_gradient(hidden, d_hidden, d_hidden);

  const TensorView pooled = of(shard, shard.room.pooled), d_pooled = of(shard, shard.room.d_pooled);
  dense_[0].backward(*kernels_, as_rows(pooled), d_hidden, *shard.gradients);
  dense_[0].backward_input(*kernels_, d_hidden, as_rows(d_pooled));
  undrop(0, shard, d_pooled);
  kernels_->relu_gradient(pooled, d_pooled, d_pooled);
  kernels_->image().max_pool_gradient(of(shard, shard.room.outputs[1]), d_pooled, d_output_of(1, shard));
}

void Convnet::Network::backward_stage(std::size_t index, const Pass& pass) {
  const Stage& stage = stages_[index];
  if (stage.norm) backward_norm(index, pass);
  for_each_shard(pass, [&](const Shard& shard) {
    stage.convolution.backward(*kernels_, input_of(index, shard), d_output_of(index, shard), *shard.gradients);
  });
}

/// Overwrites the gradient of a stage's output with that of its convolution's sums. Each shard keeps its own gradients
/// of gamma and beta, which add up like those of other variables. Only the gradient of the input needs their sum over
/// all shards.
void Convnet::Network::backward_norm(std::size_t index, const Pass& pass) {
  Stage& stage = stages_[index];
  const BatchNorm& norm = *stage.norm;
  const ops::Normalisation by = normalisation(index, pass);
  const TensorView d_parameters = stage.d_parameters.view();
  for_each_shard(pass, [&](const Shard& shard) {
    norm.backward(*kernels_, sums_of_samples(index, shard), by,
                  first_rows(d_output_of(index, shard), shard.batch.samples), *shard.gradients);
  });
  sum_up(stage, pass,
         {[&](const Shard& shard) { return shard.gradients->of(norm.gamma()); },
          [&](const Shard& shard) { return shard.gradients->of(norm.beta()); }},
         d_parameters);
  // Statistics do not include rows of padding. The gradients of those rows are zero and stay so.
  for_each_shard(pass, [&](const Shard& shard) {
    const TensorView d_sums = first_rows(d_output_of(index, shard), shard.batch.samples);
    norm.backward_input(*kernels_, sums_of_samples(index, shard), by, d_sums, d_parameters, d_sums);
    shard.gradients->ready(norm.gamma());
    shard.gradients->ready(norm.beta());
  });
}

void Convnet::Network::undrop(std::size_t layer, const Shard& shard, const TensorView& dx) {
  if (!dropout_.empty()) dropout_[layer].backward(*kernels_, of(shard, shard.room.masks[layer]), dx, dx);
}

/// Over all shards, those of other ranks too. `sum` has the sums of `parts` one after the other.
void Convnet::Network::sum_up(Stage& stage, const Pass& pass, const std::vector<PartOfShard>& parts,
                              const TensorView& sum) {
  const std::int64_t count = sum.count() / std::ssize(parts);
  std::vector<TensorView> others;
  for (const Range& subtree : pass.subtrees) {
    const bool is_last = &subtree == &pass.subtrees.back();
    if (!is_last) others.push_back(stage.of_subtrees[others.size()].view().slice(0, sum.count()));
    std::int64_t first = 0;
    for (const PartOfShard& part : parts) {
      for (std::int64_t shard = subtree.first; shard < subtree.last; ++shard) {
        copy(part(pass.shards[static_cast<std::size_t>(shard)]), stage.shard_tree.next(), stream_);
        stage.shard_tree.push();
      }
      stage.shard_tree.finish((is_last ? sum : others.back()).slice(std::exchange(first, first + count), count));
    }
  }
  if (pass.ranks) pass.ranks->all_reduce(sum, others);
}

TensorView Convnet::Network::of(const Shard& shard, const Tensor& whole) const {
  return first_rows(whole.view(), shard.rows());
}

TensorView Convnet::Network::sums_of_samples(std::size_t stage, const Shard& shard) const {
  return first_rows(shard.room.sums[stage].view(), shard.batch.samples);
}

TensorView Convnet::Network::images(const Shard& shard) const {
  if (options_.precision == Model::Precision::bf16) return of(shard, shard.room.images);
  return shard.batch.inputs.view().reshaped({shard.rows(), options_.height, options_.width, options_.channels});
}

TensorView Convnet::Network::input_of(std::size_t stage, const Shard& shard) const {
  return stage == 0 ? images(shard) : of(shard, shard.room.outputs[0]);
}

/// After the pooling the second stage's output is not needed any more, so its gradient takes its place.
TensorView Convnet::Network::d_output_of(std::size_t stage, const Shard& shard) const {
  return of(shard, stage == 0 ? shard.room.d_first : shard.room.outputs[1]);
}

TensorView Convnet::Network::statistics_of(std::size_t stage, const TensorView& all) const {
  return all.slice(stages_[stage].first_statistic, stages_[stage].norm->statistics());
}

ops::Normalisation Convnet::Network::normalisation(std::size_t stage, const Pass& pass) const {
  const BatchNorm& norm = *stages_[stage].norm;
  return pass.is_training() ? norm.by(stages_[stage].statistics.view(), pass.samples) : norm.by_moving_averages();
}

}  // namespace lockstep::nn
