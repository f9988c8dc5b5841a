// Models that compute the shards of a step together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/core/order/range.hpp>
#include <lockstep/models/nn/model.hpp>

#include "models/ops/answer.hpp"

namespace lockstep {
class DeclaredSums;
}

namespace lockstep::nn {

/// The shards of a rank, to be computed together with those of the other ranks.
struct JointBatch {
  const SampleBatch::Group& shards;           ///< adjacent in the global batch
  std::span<const Model::ShardPlace> places;  ///< one for each shard
  std::int64_t samples = 0;                   ///< in all ranks' shards
  std::span<const Range> subtrees;            ///< those of the sums, by the shards' numbers here (Shares)
};

/// What a model also offers (Model::joint) if its result for a sample depends on the other samples of the step, on
/// every rank. While it computes, it adds numbers up over all shards.
class JointModel {
 public:
  virtual ~JointModel() = default;

  /// Of each shard. A GPU may still be computing them (Model::start_shards).
  using Losses = std::vector<ops::Answer<ops::Kernels::BatchLoss>>;

  /// The number of elements of each of those sums, in order; the same for every batch. Their dtype is the variables'.
  virtual std::vector<std::int64_t> joint_sums() const = 0;

  /// COLL. Forward and backward pass of the shards of all ranks, making the sums of `joint_sums()` through `ranks`. For
  /// each shard, as Model::train_shard: overwrites gradients[i] and returns its losses. A shard's statistics are its
  /// part of the sums that make up the statistics.
  ///
  /// The sums are one tree over the shards of all ranks if the strategy reduces in the fixed order. The bits are then
  /// the same on any number of ranks. InvalidArgument as for
  /// train_shard; also if there is no shard, if places or buffers do not match the shards one to one, or if `samples`
  /// is less than the shards have.
  virtual Losses train_jointly(const JointBatch& batch, std::span<const GradientBuffer> gradients,
                               DeclaredSums& ranks) = 0;
};

}  // namespace lockstep::nn

namespace lockstep {
template <>
struct detail::Inside<nn::Model> {
  nn::Model& model;

  nn::JointModel* joint() const { return model.joint(); }
  auto start_shards(auto&&... of) const { return model.start_shards(of...); }
  auto train_watched(auto&&... of) const { return model.train_watched(of...); }
  auto train_watched_one_by_one(auto&&... of) const { return model.Model::train_watched(of...); }
};
inline detail::Inside<nn::Model> inside(nn::Model& model) {
  return {model};
}
}  // namespace lockstep
