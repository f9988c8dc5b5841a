// One step of replicated modules: their gradients, losses and buffers, summed over the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <lockstep/core/order/range.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "core/order/shares.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/subtrees.hpp"
#include "sync/step/synchronous_step.hpp"
#include "sync/strategy/audit_round.hpp"
#include "torch/backward_pass.hpp"
#include "torch/replica.hpp"
#include "torch/table_gradients.hpp"

namespace lockstep::libtorch {

/// Sums of doubles.
using Reals = std::vector<double>;

/// The elements of a vector, in place.
template <class T>
TensorView numbers(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), {std::ssize(values)}, lockstep::detail::dtype_of<T>};
}

/// LOCAL. How the ranks share the shards of a step.
const Shares& shares_of(Strategy& strategy, int shards);

class Step {
 public:
  /// Computes a shard of the batch.
  using Compute = std::function<Loss(int)>;

  /// InvalidArgument for modules that are not of the context's strategy.
  Step(ModuleList modules, ReplicaContext& context, const Here& here);

  /// Of this rank's batch, and of what it accumulated.
  ReplicatedModule::MeanLoss of_batch(const Loss& loss);

  /// Of this rank's shards.
  ReplicatedModule::MeanLoss of_shards(int shards, const Compute& compute);

 private:
  /// A parameter that is not frozen.
  struct Trained {
    std::size_t number;  ///< in `parameters_`
    std::size_t piece;   ///< of the gradients; past the last if it has no elements
  };
  struct Table {
    std::size_t number;  ///< in `parameters_`
    std::size_t module;
    std::size_t parameter;  ///< of the module
  };
  /// What counts of this pass and of those that were accumulated.
  struct Counted {
    std::vector<std::int64_t> has;  ///< by parameter: the number of ranks with a gradient
    Reals samples_of_parameters;    ///< of the passes since it was zeroed
    Reals samples;                  ///< by rank
    double loss = 0;                ///< the sum over the samples
    double total = 0;               ///< samples
  };
  /// Where the gradients of a shard are added up: a place for each range of the store's memory.
  struct Places {
    const std::vector<TensorView>& ranges;
    std::vector<TensorView> places = {};

    TensorView of(const Parameter& parameter) const;
  };

  /// The sums `on_the_way` are those that `compute` makes over the ranks. `audit` may be empty.
  ReplicatedModule::MeanLoss run(std::string_view what, const SumList& on_the_way,
                                 const std::function<void(DeclaredSums&)>& compute,
                                 const std::function<void()>& audit = {});
  bool decide();
  void compute_batch(BackwardPass& pass, const Loss& loss, DeclaredSums& sums);
  void compute_shards(const Compute& compute, DeclaredSums& sums);
  ReplicatedModule::MeanLoss of_joint_shards(const Compute& compute);
  std::vector<TensorView> gradient_ranges() const;
  std::vector<TensorView> gradient_homes(std::size_t subtree) const;
  void place_subtrees(DeclaredSums& sums);
  void run_shard(BackwardPass& pass, std::size_t shard, const Places& places);
  Loss compute_shard(std::int64_t number, const Compute& compute, std::size_t shard, const Places& places);
  void note_shard(const Loss& loss, const std::vector<char>& changed, FixedOrderAccumulator& reals);
  void finish_subtree(FixedOrderAccumulator& reals);
  void finish_shards(DeclaredSums& sums);
  void note_earlier();
  void count(const Loss& loss);
  void count_shards(double loss, double samples);
  template <class Visit>
  void visit_totals(const Visit& visit);
  std::vector<TensorView> totals();
  void take_totals();
  bool settle_doubts();
  void share_buffers(const RankSums& sums);
  void finish_gradients();
  void finish_tables();

  // step_audit.cpp
  ReplicatedModule::Impl* audited_module() const;
  void begin_audit();
  std::vector<std::string> audited_values() const;
  AuditRound::Digests digests_of(std::size_t shard, const Places& places, const Loss& loss,
                                 const std::vector<char>& changed) const;
  AuditRound::Digests compute_apart(std::int64_t number, const Compute& compute,
                                    std::optional<std::uint64_t> seed = {});
  bool depends_on_random_numbers(const Compute& compute);
  void require_passed_audit(const Compute& compute);

  std::vector<GradientBucket> buckets(const Reductions& reductions) const;
  std::vector<char> changed_buffers() const;
  std::string describe_changed_buffers() const;
  void begin_with_buffers();
  void restoring_buffers(const std::function<void()>& body);
  void weigh_buffers(double samples, double* to) const;
  at::Tensor changed_integers() const;
  TorchDevice& device() const { return *modules_.front()->device; }

  ModuleList modules_;
  ModuleList all_;  ///< of the strategy: a loss may go through modules that it does not train
  Stream& stream_;
  ReplicaContext& context_;
  Here here_;
  std::size_t rank_;

  // Of all modules, one after the other.
  std::vector<Parameter*> parameters_;
  std::vector<ModuleBuffer*> buffers_;         ///< also those of the strategy's other modules
  std::vector<std::size_t> first_parameters_;  ///< of each module
  std::vector<Trained> trained_;
  std::vector<Table> tables_;
  std::int64_t reals_ = 0;  ///< elements of the floating-point buffers

  // Of this rank, and after `take_totals` of all.
  Counted counted_;                    ///< and after `settle_doubts` what holds
  Counted if_zeroed_;                  ///< if zeros in the place of zeros are a zero_grad
  std::vector<std::int64_t> zeroed_;   ///< by parameter: the ranks that have seen it zeroed since the step began
  std::vector<std::int64_t> clipped_;  ///< by parameter: Parameter::was_clipped
  std::vector<std::int64_t> earlier_;  ///< by parameter: the ranks that have a gradient of an earlier step
  std::vector<std::int64_t> changed_;  ///< by buffer
  std::int64_t accumulating_ = 0;      ///< the ranks that have accumulated passes
  std::int64_t written_ = 0;           ///< 0 unless the ranks have changed gradients of earlier steps differently
  std::tuple<std::vector<std::int64_t>, Reals> totals_;  ///< all of these

  const Shares* shares_ = nullptr;     ///< of a step in shards; null in others
  std::optional<Subtrees> several_;    ///< if a rank has several subtrees of these
  std::vector<Reals> of_subtrees_;     ///< of this rank: loss, samples, and buffers times samples
  std::optional<PlacedSum> placed_;    ///< of losses and samples, if a rank has several subtrees
  std::optional<AuditRound> audited_;  ///< of a step that is audited

  std::string refusal_;             ///< by all ranks, of what was done to gradients between passes
  TableGradients table_gradients_;  ///< of `tables_`
  std::vector<at::Tensor> noted_;   ///< other buffers after the first shard with samples, where that has changed them
};

}  // namespace lockstep::libtorch
