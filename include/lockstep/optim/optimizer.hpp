// Optimizers: from the gradients of every replica to one and the same step on all of them.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/ops/kernels.hpp>
#include <lockstep/optim/learning_rate.hpp>
#include <lockstep/reduce/declared_sums.hpp>
#include <lockstep/strategy/replica_context.hpp>
#include <lockstep/strategy/variable.hpp>
#include <lockstep/strategy/variable_store.hpp>

namespace lockstep {

/// What this rank found for `variable`: of its shape and type.
struct Gradient {
  Tensor value;
  Variable variable;
};

/// LOCAL. For each variable its gradient in the store, in place: what is written there, apply_gradients need
/// not copy. ContextError before the variables are sealed, InvalidArgument for one that is not trainable.
std::vector<Gradient> gradients_in_store(const VariableStore& store, const VariableList& variables);

/// What apply_gradients takes: a vector, a span, or `{{gradient, w}, …}`.
template <class T>
concept GradientList = std::convertible_to<const T&, std::span<const Gradient>>;

/// What a training step adds up over the replicas besides its gradients.
struct StepSums {
  std::int64_t samples = 0;
  double loss = 0;
  std::int64_t correct = 0;
};

/// Gradients that no rank can compute by itself: on the way `compute` makes each of `sums` over the ranks once, in
/// their order, and returns this rank's part of what the step adds up.
struct JointComputation {
  SumList sums;
  std::function<StepSums(DeclaredSums&)> compute;
};

/// Applies gradients to the mirrored variables they belong to.
///
/// Each apply_gradients is COLL and blocking: exactly one merge_call, and one agreement. Every rank calls it
/// with gradients of the same variables in the same order (there may be none), by the same of the overloads;
/// MismatchError on all of them otherwise. The replicas' gradients are added up in the fixed order, so the
/// bits of the step depend on their values alone. Variables that are not among them stay as they are.
///
/// Before the agreement, and on this rank only: ContextError outside replica context and for a
/// variable without memory; InvalidArgument, which names the variable, for a gradient of another shape or
/// type than its variable, for a variable that is given twice, not trainable, of another strategy or not of
/// f32 or f64, for a gradient in the memory that the store keeps for another variable's, and for a negative
/// number of samples.
///
/// The gradients' memory in the store (VariableStore::gradient) is the working memory: it holds the sums
/// afterwards. Values that live elsewhere are copied there, and stay as they are.
///
/// Optimizers keep their state in the store of the variables: what they know of each variable in its slots, and the
/// number of steps in a counter. Checkpoints hold both, so a run that is resumed goes on as if nothing had happened.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// LOCAL, on every rank. Makes the state for `variables`, as it is before the first step, where there is none yet.
  /// Steps do so themselves: this is for programs that restore a checkpoint, which must find what it has a value for.
  /// ContextError for variables without memory.
  void prepare(Strategy& strategy, const VariableList& variables) const;

  /// LOCAL. Steps made so far on variables of `strategy`: what learning rates go by. A call without variables, or with
  /// 0 samples, is none.
  std::int64_t steps(Strategy& strategy) const;

  /// Applies the sum of the replicas' gradients. Scaling the loss is the caller's.
  template <GradientList List = std::initializer_list<Gradient>>
  void apply_gradients(ReplicaContext& context, const List& gradients, Here here = Here::current()) {
    apply(context, {.gradients = gradients}, here);
  }

  /// Applies the sum of the replicas' gradients, which are sums over their samples, divided by the sum of
  /// their `samples`: so replicas with fewer samples than others, or none, count for what they brought. Where
  /// the sum is 0 nothing is applied.
  template <GradientList List = std::initializer_list<Gradient>>
  void apply_gradients(ReplicaContext& context, const List& gradients, std::int64_t samples,
                       Here here = Here::current()) {
    StepSums sums{.samples = samples};
    apply(context, {.gradients = gradients, .sums = &sums}, here);
  }

  /// The same with `own.samples`; the other numbers ride along, so that a step with its loss costs no further
  /// agreement. Returns the sums over the replicas: the same on every rank, the loss added in the fixed
  /// order.
  template <GradientList List = std::initializer_list<Gradient>>
  StepSums apply_gradients(ReplicaContext& context, const List& gradients, const StepSums& own,
                           Here here = Here::current()) {
    return apply_gradients(context, gradients, own, TensorView{}, here);
  }

  /// The same with numbers of the program's own, as many on every rank, on the device of the variables: `statistics`
  /// becomes their sum over the replicas, in the fixed order, and they cost no further agreement either.
  template <GradientList List = std::initializer_list<Gradient>>
  StepSums apply_gradients(ReplicaContext& context, const List& gradients, const StepSums& own,
                           const TensorView& statistics, Here here = Here::current()) {
    StepSums sums = own;
    apply(context, {.gradients = gradients, .sums = &sums, .statistics = statistics}, here);
    return sums;
  }

  /// The same where the gradients, `statistics` and this rank's sums are what `joint.compute` finds: it runs inside of
  /// the merge_call, in cross-replica context, and its sums over the ranks cost no further agreement. The ranks compare
  /// `joint.sums`. Where it throws on a rank, or makes fewer sums, that rank still takes part in what was declared, so
  /// nobody waits for it; then its exception goes on. The others get sums of no samples, and a PeerError in their next
  /// agreement; no rank applies anything.
  template <GradientList List = std::initializer_list<Gradient>>
  StepSums apply_gradients(ReplicaContext& context, const List& gradients, const JointComputation& joint,
                           const TensorView& statistics = {}, Here here = Here::current()) {
    StepSums sums;
    apply(context, {.gradients = gradients, .sums = &sums, .statistics = statistics, .joint = &joint}, here);
    return sums;
  }

 protected:
  /// What optimizers of every kind are told.
  struct Rules {
    LearningRate learning_rate;
    /// Of variables of two or more dimensions. Biases, and the gains and offsets of norms, have one, and stay as large
    /// as their gradients make them.
    double weight_decay = 0;
    /// The largest global norm of a gradient: one whose norm is larger is made shorter, to this. The norm is the root
    /// of the sum of the squares of all variables' gradients, each the sum over the replicas divided by the samples;
    /// UpdateKernels::sum_of_squares adds them up, in the order in which apply_gradients is given them. One that is not
    /// finite makes nothing shorter: what is wrong goes on to the variables, and shows in the loss.
    std::optional<double> clip_norm = {};
    /// Of the counter of steps. Optimizers with one name count together.
    std::string name = "optimizer";
  };

  /// With `kernels`, which the model may use too, or without the automatic choice for the device of the variables.
  /// InvalidArgument unless the weight decay is a number from 0 and the norm a positive one.
  Optimizer(Rules rules, std::shared_ptr<const ops::Kernels> kernels);

  /// Names of the slots that `update` uses.
  virtual std::vector<std::string_view> slots() const = 0;

  /// LOCAL. One step on the variables of `range`, in one pass: `range.gradients` holds the sum over the replicas, of
  /// which `step` says what it is to be multiplied with. Must be a function of these and of the slots alone.
  virtual void update(const ops::Kernels& kernels, const FlatRange& range, const ops::UpdateStep& step) = 0;

 private:
  class Plan;

  /// What an overload asks for.
  struct Request {
    std::span<const Gradient> gradients;
    StepSums* sums = nullptr;  ///< none: the gradients are not divided
    TensorView statistics = {};
    const JointComputation* joint = nullptr;  ///< none: everything is there
  };

  const Plan& plan_for(Strategy& strategy, std::span<const Gradient> gradients);
  void apply(ReplicaContext& context, const Request& request, const Here& here);
  std::exception_ptr compute(const Plan& plan, const Request& request, CrossDeviceOps& reductions);
  void reduce_and_step(const Plan& plan, const Request& request, CrossDeviceOps& reductions);
  void step(const Plan& plan, double divisor);
  double clip_factor(const Plan& plan, double divisor) const;

  Rules rules_;
  std::string counter_;                          ///< of steps, as the store calls it
  std::shared_ptr<const ops::Kernels> kernels_;  ///< chosen by the first step where none were given
  std::unique_ptr<const Plan> plan_;             ///< of the last call: most programs give the same variables every time
};

}  // namespace lockstep
