// One step of a replicated module: its gradients, losses and buffers, summed over the ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <lockstep/input/range.hpp>
#include <lockstep/reduce/declared_sums.hpp>
#include <lockstep/reduce/fixed_order.hpp>

#include "torch/replica.hpp"

namespace lockstep::libtorch {

/// Sums of doubles.
using Reals = std::vector<double>;

class Step {
 public:
  Step(ReplicatedModule::Impl& module, ReplicaContext& context, const Here& here);

  /// Of this rank's batch, and of what it accumulated.
  MeanLoss of_batch(const Loss& loss);

  /// Of this rank's shards.
  MeanLoss of_shards(int shards, const std::function<Loss(int)>& compute);

 private:
  /// The sums `on_the_way` are those that `compute` makes over the ranks.
  MeanLoss run(std::string_view what, const SumList& on_the_way, const std::function<void(DeclaredSums&)>& compute);
  void reduce(const SumList& on_the_way, const std::function<void(DeclaredSums&)>& compute, CrossDeviceOps& reductions,
              MeetingPoint::Covered& covered);
  void compute_shards(Range own, const std::function<Loss(int)>& compute, DeclaredSums& sums);
  void all_reduce_totals(CrossDeviceOps& reductions);
  void share_buffers(CrossDeviceOps& reductions, MeetingPoint::Covered& covered);
  void finish_gradients();

  void weigh_buffers(double samples, double* to) const;
  at::Tensor changed_integers() const;

  ReplicatedModule::Impl& module_;
  Stream& stream_;
  ReplicaContext& context_;
  Here here_;
  int rank_;

  // Of this rank, and after `all_reduce_totals` of all.
  std::int64_t failures_ = 0;
  std::vector<std::int64_t> has_;      ///< by parameter: the number of ranks with a gradient
  std::vector<std::int64_t> changed_;  ///< by buffer
  Reals samples_;                      ///< by rank
  double loss_ = 0;                    ///< the sum over the samples
  double total_ = 0;                   ///< samples

  std::optional<double> divided_by_;  ///< the gradients, before the sum
  std::exception_ptr failure_;        ///< of this rank
  std::optional<Reals> buffers_;      ///< this rank's times its samples, if its shards have added them up
  std::vector<at::Tensor> noted_;     ///< other buffers after the first shard with samples, where that has changed them
};

}  // namespace lockstep::libtorch
