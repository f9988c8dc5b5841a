// Models whose shards know of each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/nn/model.hpp>
#include <lockstep/reduce/declared_sums.hpp>

namespace lockstep::nn {

/// The shards of a rank, to be computed together with those of the other ranks.
struct JointBatch {
  const BatchGroup& shards;            ///< neighbours in the global batch
  std::span<const ShardPlace> places;  ///< of each
  std::int64_t samples = 0;            ///< of all ranks' shards
};

/// What a model can do besides (Model::joint) where what it makes of a sample depends on the other samples of the step,
/// on every rank: on its way it adds numbers up over all shards.
class JointModel {
 public:
  virtual ~JointModel() = default;

  /// How many numbers each of those sums has, in their order, for every batch; they are of the variables' dtype.
  virtual std::vector<std::int64_t> joint_sums() const = 0;

  /// COLL: forward and backward of the shards of all ranks, and `joint_sums()` over them by way of `ranks`. As
  /// Model::train_shard for each shard: overwrites gradients[i], and returns what there is to say of its losses. The
  /// statistics of a shard are its part of the sums that statistics are made of.
  ///
  /// The sums are one tree over the shards of all ranks, so the bits are the same on every number of ranks.
  /// InvalidArgument as train_shard; unless there are as many places and gradients as shards, and one or more; and for
  /// fewer samples than the shards have.
  virtual std::vector<ops::CrossEntropy> train_jointly(const JointBatch& batch,
                                                       std::span<const GradientBuffer> gradients,
                                                       DeclaredSums& ranks) = 0;
};

}  // namespace lockstep::nn
