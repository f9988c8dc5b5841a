// The state of LibTorch's own optimizers as that of a strategy.
#pragma once

#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include <lockstep/core/base/export.hpp>
#include <lockstep/torch/data_parallel.hpp>

namespace lockstep::libtorch {

/// As long as one lives, the state of a torch optimizer belongs to the strategy of the modules that it trains:
/// checkpoints hold it, `attest` compares it, `rebroadcast` and a restored checkpoint set it. The optimizer is used as
/// before, and costs nothing more in a step. It may be SGD, Adam, AdamW, RMSprop or Adagrad.
///
///     torch::optim::AdamW adamw{net.parameters(), torch::optim::AdamWOptions{1e-3}};
///     lockstep::libtorch::ReplicatedOptimizer replicated{net, adamw};
///     const auto resumed = checkpoints.resume_latest();  // before the first step, or later
///
/// Torch makes the state of a parameter in the first step that has its gradient. A checkpoint restores which parameters
/// have any, too, so a training that is resumed before its first step continues to the same bytes.
///
/// `fc.weight@exp_avg` is a slot of a parameter, `fc.weight@step` its number of steps, and `fc.weight@adamw` 0 until it
/// has state. `fc.weight@adamw.lr`, `fc.weight@adamw.beta1`, … are the options of the group whose first parameter that
/// is; they are restored with the rest, as torch's own `load` does, so set another learning rate after that. If there
/// are several groups, `fc.weight@adamw.1` says that the parameter is in the second. A checkpoint fits if all names do:
/// the class of the optimizer, its parameters, its groups, and its slots, which follow from the options (momentum,
/// amsgrad, centered). Where a parameter has no state yet, its slots are kept as zeros. A learning-rate scheduler keeps
/// its own step count: step a new scheduler before the restore, which then sets the rate.
///
/// Must not outlive the optimizer, which stays where it is and keeps its parameters. An optimizer without a
/// ReplicatedOptimizer works too, but its state is not checkpointed, attested or rebroadcast.
class LOCKSTEP_API ReplicatedOptimizer {
 public:
  /// COLL, agreed, in cross-replica or default context. InvalidArgument for another class of optimizer, such as LBFGS,
  /// for a parameter that is none of the module's or of the modules', for one that it has twice or that another live
  /// ReplicatedOptimizer has, for one whose update the ranks share (ReductionOptions::shard_optimizer), since torch
  /// would keep its state whole, and for modules of several strategies. MismatchError if ranks differ in the
  /// optimizer's class, parameters or slots. If a rank fails alone, the others throw PeerError.
  ReplicatedOptimizer(const ReplicatedModule& module, ::torch::optim::Optimizer& optimizer,
                      Here here = Here::current());
  ReplicatedOptimizer(const std::vector<ReplicatedModule*>& modules, ::torch::optim::Optimizer& optimizer,
                      Here here = Here::current());
  ReplicatedOptimizer(ReplicatedOptimizer&&) noexcept;
  ~ReplicatedOptimizer();

 private:
  class State;
  static std::shared_ptr<State> make(const std::vector<ReplicatedModule::Impl*>& modules,
                                     ::torch::optim::Optimizer& optimizer, const Here& here);

  std::shared_ptr<State> state_;  ///< the strategy's store asks it
};

}  // namespace lockstep::libtorch
