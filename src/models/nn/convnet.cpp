#include "models/nn/convnet.hpp"

#include <utility>

#include "models/nn/convnet_network.hpp"

namespace lockstep::nn {

Convnet::Convnet(Strategy& strategy, const ConvnetOptions& options, std::shared_ptr<const ops::Kernels> kernels,
                 Here here)
    : network_{std::make_unique<Network>(*this, strategy, options, std::move(kernels), here)} {}

Convnet::Convnet(const Network& other) : network_{std::make_unique<Network>(*this, other)} {}

Convnet::~Convnet() = default;

std::unique_ptr<Model> Convnet::make_worker() const {
  if (network_->joint()) return nullptr;
  return std::unique_ptr<Convnet>{new Convnet{*network_}};
}

std::span<const Variable> Convnet::variables() const {
  return network_->variables();
}

ops::Kernels::BatchLoss Convnet::train_shard(const SampleBatch& shard, const Model::ShardPlace& place,
                                             const GradientBuffer& gradients) {
  return start_shard(shard, place, gradients).wait();
}

ops::Answer<ops::Kernels::BatchLoss> Convnet::start_shards(const SampleBatch::Group& shards,
                                                           std::span<const Model::ShardPlace> places,
                                                           const GradientBuffer& sum) {
  return start_one_by_one(shards, places, sum);
}

ops::Answer<ops::Kernels::BatchLoss> Convnet::start_shard(const SampleBatch& shard, const Model::ShardPlace& place,
                                                          const GradientBuffer& gradients) {
  return network_->start_shard(shard, place, gradients);
}

JointModel* Convnet::joint() {
  return network_->joint();
}

ops::Kernels::BatchLoss Convnet::evaluate_shard(const SampleBatch& shard) {
  return network_->evaluate_shard(shard);
}

std::vector<double> Convnet::logits(const SampleBatch& batch) {
  return network_->logits(batch);
}

std::int64_t Convnet::statistics() const {
  return network_->statistics();
}

void Convnet::absorb_statistics(const TensorView& total, std::int64_t samples) {
  network_->absorb_statistics(total, samples);
}

std::vector<SyncOnReadVariable> Convnet::moving_averages() const {
  return network_->moving_averages();
}

std::unique_ptr<Model> make_convnet(Strategy& strategy, const ConvnetOptions& options,
                                    std::shared_ptr<const ops::Kernels> kernels, Here here) {
  return std::make_unique<Convnet>(strategy, options, std::move(kernels), here);
}

}  // namespace lockstep::nn
