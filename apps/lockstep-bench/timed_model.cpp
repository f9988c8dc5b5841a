#include "apps/lockstep-bench/timed_model.hpp"

#include "reduce/declared_sums.hpp"

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
  const ops::Kernels::BatchLoss result = model_.train_shards(shards, places, sum);
  clock_.enter(Part::optimizer);
  return result;
}

nn::JointModel::Losses TimedModel::train_jointly(const nn::JointBatch& batch,
                                                 std::span<const nn::GradientBuffer> gradients, DeclaredSums& ranks) {
  clock_.enter(Part::forward);
  Losses losses = model_.joint()->train_jointly(batch, gradients, ranks);
  for (const nn::GradientBuffer& each : gradients) each.stream().synchronize();
  clock_.enter(Part::optimizer);
  return losses;
}

void TimedModel::absorb_statistics(const TensorView& total, std::int64_t samples) {
  model_.absorb_statistics(total, samples);
  clock_.enter(Part::other);
}

}  // namespace lockstep::bench
