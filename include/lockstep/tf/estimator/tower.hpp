// What a model function gets from replicate_model_fn: its tower, and the optimizers that add up what towers computed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/sync/strategy/variable.hpp>
#include <lockstep/tf/estimator/estimator_spec.hpp>

namespace lockstep {

namespace detail {
class TowerCall;
}

/// One replica's call of a model function. Ends with the call.
class LOCKSTEP_API Tower {
 public:
  /// This replica's gradient of `variable`, dense or some rows; or none, if its piece of the batch does not depend on
  /// the variable.
  struct Gradient {
    std::optional<Optimizer::Gradient::Value> value;
    Variable variable;
  };

  Tower(const Tower&) = delete;
  Tower& operator=(const Tower&) = delete;

  EstimatorSpec::Mode mode() const;
  ReplicaContext& context() const;

  /// COLL, blocking, if the model has no variable for this name yet: makes one as Strategy::create_variable does, and
  /// gives it memory at once. LOCAL otherwise: returns the variable that was made for the name, and ignores `initial`
  /// and the options. Another ReplicatedModel of the strategy has variables of its own: a second "c" is called "c_1".
  ///
  /// InvalidArgument, on this rank alone, if the options have no name, or if the name is an accumulator's.
  MirroredVariable variable(Variable::Options options, const std::function<Tensor()>& initial,
                            Here here = Here::current());

  /// The same for a sum that belongs to a metric: zeros of this shape, separate on each replica. In the model
  /// function, `assign_add` adds this replica's part. The sum continues from call to call, also after one that fails,
  /// until ReplicatedModel::reset_metrics. Checkpoints do not hold it. InvalidArgument if the name is a variable's, or
  /// an accumulator's of another shape or type.
  SyncOnReadVariable accumulator(const std::string& name, const Shape& shape = {}, DType dtype = DType::f64,
                                 Here here = Here::current());

 private:
  friend class TowerOptimizer;
  friend class detail::TowerCall;
  explicit Tower(detail::TowerCall& call) : call_{call} {}

  detail::TowerCall& call_;
};

/// An optimizer for model functions. It adds up the gradients of all towers and makes one step, the same on all
/// replicas. It has no state besides the optimizer's, so it may be made in each call or once.
class LOCKSTEP_API TowerOptimizer {
 public:
  using Factory = std::function<std::shared_ptr<Optimizer>()>;

  /// Make the optimizer once: a new one plans its steps again, and continues the count only if the old one is
  /// destroyed. InvalidArgument for null.
  explicit TowerOptimizer(std::shared_ptr<Optimizer> optimizer);
  /// Calls `make` once, at the first use. InvalidArgument, then, if it returns null.
  explicit TowerOptimizer(Factory make);

  /// LOCAL. The optimizer: its state, its learning rate. Inside a model function this counts as use of a
  /// TowerOptimizer, after which the function may also call plain optimizers. Those add up gradients, and never divide
  /// them.
  Optimizer& optimizer();

  /// COLL, blocking, two agreements. Applies the sum of all towers' gradients, divided by the number of replicas
  /// unless the reduction of the losses is ReplicateOptions::Reduction::sum. Pass the gradients of the loss that the
  /// tower returns, unscaled, in memory of the host or of the rank's GPU. In modes other than Mode::train, the call
  /// changes nothing and only counts as use of the optimizer.
  ///
  /// If some towers have a gradient for a variable, those without one contribute zeros. A variable for which no tower
  /// has one does not change, and neither does its state. Slices are put together in the order of ranks. `global_step`,
  /// a mirrored i64 of shape [], is incremented, unless no variable has a gradient.
  ///
  /// All towers make the same calls of optimizers in the same order, with the same variables and global step; otherwise
  /// every rank throws MismatchError, and so it does if a variable's gradient is dense on one rank and slices on
  /// another. Other errors are Optimizer's.
  void apply_gradients(Tower& tower, const std::vector<Tower::Gradient>& gradients,
                       const std::optional<Variable>& global_step = {}, Here here = Here::current());

  /// COLL, blocking, one agreement, outside of model functions. Applies the gradients that there are as the plain
  /// optimizer does: their sum over the replicas, not divided. MismatchError if the ranks differ in the gradients or in
  /// the global step. InvalidArgument inside of a model function.
  void apply_gradients(ReplicaContext& context, const std::vector<Tower::Gradient>& gradients,
                       const std::optional<Variable>& global_step = {}, Here here = Here::current());

 private:
  std::shared_ptr<Optimizer> optimizer_;  ///< null before the first use, if `make_` makes it
  Factory make_;
};

}  // namespace lockstep
