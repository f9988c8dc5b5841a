// A small convolutional network.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/models/nn/models.hpp>

#include "models/nn/joint_model.hpp"
#include "models/ops/answer.hpp"

namespace lockstep::nn {

/// The model of make_convnet.
class Convnet final : public Model {
 public:
  /// As make_convnet.
  Convnet(Strategy& strategy, const ConvnetOptions& options, std::shared_ptr<const ops::Kernels> kernels,
          Here here = Here::current());

  ~Convnet() override;

  std::string_view name() const override { return "convnet"; }
  std::span<const Variable> variables() const override;
  BatchLoss train_shard(const SampleBatch& shard, const ShardPlace& place, const GradientBuffer& gradients) override;
  ops::Answer<BatchLoss> start_shards(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                                      const GradientBuffer& sum) override;
  ops::Answer<BatchLoss> start_shard(const SampleBatch& shard, const ShardPlace& place,
                                     const GradientBuffer& gradients) override;
  JointModel* joint() override;
  /// Null for a joint model.
  std::unique_ptr<Model> make_worker() const override;
  BatchLoss evaluate_shard(const SampleBatch& shard) override;

  std::vector<double> logits(const SampleBatch& batch) override;
  std::int64_t statistics() const override;
  void absorb_statistics(const TensorView& total, std::int64_t samples) override;
  std::vector<SyncOnReadVariable> moving_averages() const override;

 private:
  class Network;

  /// A worker of `other`.
  explicit Convnet(const Network& other);

  std::unique_ptr<Network> network_;
};

}  // namespace lockstep::nn
