#include "apps/lockstep-bench/timed_model.hpp"

#include <algorithm>

#include "apps/lockstep-bench/timing.hpp"
#include "models/nn/joint_model.hpp"
#include "models/nn/shard_sums.hpp"
#include "sync/reduce/declared_sums.hpp"

namespace lockstep::bench {

TimedModel::TimedModel(nn::Model& model, StepClock& clock) : model_{model}, clock_{clock} {
  model_.observe_passes([&clock](nn::Model::Pass pass) {
    clock.enter(pass == nn::Model::Pass::forward ? Part::forward : Part::backward);
  });
}

TimedModel::~TimedModel() {
  model_.observe_passes({});
}

ops::Kernels::BatchLoss TimedModel::train_shards(const SampleBatch::Group& shards,
                                                 std::span<const nn::Model::ShardPlace> places,
                                                 const nn::GradientBuffer& sum) {
  clock_.enter(Part::forward);
  sum_ = &sum;
  ready_.assign(sum.variables().size(), std::chrono::nanoseconds::max());
  const ops::Kernels::BatchLoss result = model_.train_shards(shards, places, inside(sum).reporting_to(*this));
  const std::chrono::nanoseconds pass = clock_.in_current();
  clock_.enter(Part::optimizer);
  ready_moments_.resize(ready_.size());
  for (std::size_t i = 0; i < ready_.size(); ++i)
    ready_moments_[i].push_back(std::min(1.0, std::chrono::duration<double>{ready_[i]} / pass));
  return result;
}

void TimedModel::on_ready(std::size_t variable) {
  ready_[variable] = clock_.in_current();
  sum_->ready(sum_->variables()[variable]);
}

std::vector<double> TimedModel::ready_moments() const {
  std::vector<double> medians;
  for (const std::vector<double>& moments : ready_moments_) medians.push_back(median(moments));
  return medians;
}

nn::JointModel::Losses TimedModel::train_jointly(const nn::JointBatch& batch,
                                                 std::span<const nn::GradientBuffer> gradients, DeclaredSums& ranks) {
  clock_.enter(Part::forward);
  Losses losses = inside(model_).joint()->train_jointly(batch, gradients, ranks);
  for (const nn::GradientBuffer& each : gradients) each.stream().synchronize();
  clock_.enter(Part::optimizer);
  return losses;
}

void TimedModel::absorb_statistics(const TensorView& total, std::int64_t samples) {
  model_.absorb_statistics(total, samples);
  clock_.enter(Part::other);
}

}  // namespace lockstep::bench
