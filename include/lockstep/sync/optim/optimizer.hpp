// Optimizers turn every replica's gradients into one step, the same on all replicas.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/optim/learning_rate.hpp>
#include <lockstep/sync/reduce/sum_list.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/sync/strategy/variable.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>
#include <lockstep/sync/update/update_step.hpp>

namespace lockstep {

namespace detail {
struct Call;
struct ComputedStep;
struct StepThreads;
}  // namespace detail

/// Applies gradients to the mirrored variables they belong to.
///
///   Sgd sgd{{.learning_rate = 0.1, .momentum = 0.9}};
///   strategy.run([&](ReplicaContext& context) {
///     const std::int64_t samples = add_up_gradients(gradient);  // of this rank's part of the batch
///     sgd.apply_gradients(context, {{gradient, w}}, samples);   // divides the ranks' sum by all samples
///   });
///
/// A step is COLL and blocking: exactly one merge_call, and one agreement. Every rank gives gradients of the same
/// variables in the same order (there may be none), for the same step, learning rate and options; otherwise all throw
/// MismatchError. The strategy's reductions (ReductionOptions) add the replicas' gradients up. With reductions in the
/// fixed order, the bits of the step depend on the gradients' values alone. Other variables do not change.
///
/// Before the agreement, and on this rank only: ContextError outside replica context, for a variable without memory,
/// and while the stream is being captured; InvalidArgument, naming the variable, for a gradient that its variable
/// cannot have (Gradient), and for a variable that is given twice, not trainable, of another strategy or not of f32 or
/// f64; InvalidArgument for a negative number of samples, and for a weight that is negative or not finite.
///
/// Optimizers keep their state in the store of the variables: that of each variable in its slots, and the number of
/// steps in a counter (steps). Checkpoints hold both, so a resumed run continues as if it had never stopped. With
/// ReductionOptions::shard_optimizer, each rank updates its slices of the variables and keeps their slots alone; then
/// the optimizer must update element by element, else InvalidArgument before the agreement. A variable that one rank
/// alone updates (ReplicateOptions::Placement) has its slots there. In both cases the others get the new values.
class LOCKSTEP_API Optimizer {
 public:
  /// This rank's gradient of `variable`, of the same shape and type: `{tensor, w}`, or `{slices, w}`.
  ///
  /// The memory for gradients in the store (VariableStore::gradient) is working memory, and holds the sums afterwards,
  /// unless the ranks share the update. A tensor that lives elsewhere is copied there and does not change; it must not
  /// lie where another variable's gradient belongs.
  ///
  /// Slices, such as an embedding's, travel as the rows that they name. Ranks may bring different numbers of rows, or
  /// none; MismatchError if one rank brings slices and another a tensor. Rows of one index are added up on the host, in
  /// rank order, and within a rank in their order, so the bits do not depend on how many ranks share the rows. The step
  /// and its norm have the bits of a step with this sum as a dense gradient: a row that no rank names has a zero
  /// gradient, and still moves if the optimizer has momentum, moments or weight decay. Sgd without these visits the
  /// named rows alone. InvalidArgument for parts that do not fit together, for an index outside the rows of the
  /// variable, and for slices in the store's memory for gradients.
  struct Gradient {
    /// A dense tensor, or only the rows that are not zero.
    class Value {
     public:
      Value(Tensor dense) : value_{std::move(dense)} {}
      Value(IndexedSlices slices) : value_{std::move(slices)} {}

      /// Null if the gradient is dense.
      const IndexedSlices* slices() const { return std::get_if<IndexedSlices>(&value_); }

      DType dtype() const { return slices() ? slices()->values.dtype() : dense().dtype(); }
      /// Of the whole gradient.
      const Shape& shape() const { return slices() ? slices()->dense_shape : dense().shape(); }

      // Of a dense gradient. InvalidArgument for slices.
      const Tensor& dense() const;
      operator const Tensor&() const { return dense(); }
      std::int64_t count() const { return dense().count(); }
      TensorView view() const { return dense().view(); }

     private:
      std::variant<Tensor, IndexedSlices> value_;
    };

    Value value;
    Variable variable;
  };

  /// LOCAL. The gradient of each variable in the store. apply_gradients need not copy what is written there.
  /// ContextError before the variables are sealed, InvalidArgument for a variable that is not trainable.
  static std::vector<Gradient> gradients_in_store(const VariableStore& store, const detail::VariableList& variables,
                                                  Here here = Here::current());

  /// The numbers that a training step adds up over the replicas besides its gradients.
  struct StepSums {
    std::int64_t samples = 0;
    double loss = 0;
    std::int64_t correct = 0;
    /// The total weight of the samples. If empty, each weighs 1. In a sum over the replicas it is empty only if the
    /// step was not applied, or had no numbers of the ranks.
    std::optional<double> weight = {};
  };

  /// This rank's numbers in a step: none, the number of its samples, or all.
  struct Own : std::optional<StepSums> {
    Own() = default;
    Own(std::int64_t samples) : optional{StepSums{.samples = samples}} {}
    Own(const StepSums& all) : optional{all} {}
  };

  /// A step on which the ranks have agreed, while its gradients are being computed.
  class AgreedStep {
   public:
    /// Declares the gradient of `variable` final. It is sent while the computation continues, together with its
    /// neighbours in memory, starting with the variables created last. InvalidArgument for a variable without a
    /// gradient in this step, or ready before.
    void ready(const Variable& variable);

    /// The same for a gradient that is slices: these, in place of those in the list, which may have no rows. They
    /// travel once the ranks know that the step is applied.
    void ready(const Variable& variable, IndexedSlices slices);

    /// COLL. Sums `tensor` over the ranks, in place, as the next of Computation::sums. Make each once, in order.
    /// InvalidArgument, before anything is sent, for another type or number of elements, or if none is left.
    void all_reduce(const TensorView& tensor);

   private:
    friend struct detail::ComputedStep;
    explicit AgreedStep(detail::ComputedStep& inside) : inside_{inside} {}

    detail::ComputedStep& inside_;
  };

  /// How a rank computes its gradients after all ranks have agreed on the step, in replica context. Gradients are sent
  /// as soon as they are ready, and the sums on the way cost no further agreement; the ranks compare the list of these.
  /// Every other agreement is a ContextError meanwhile. If `compute` throws on a rank, makes fewer sums or leaves a
  /// gradient out, that rank still takes part in everything that was declared, so nobody waits for it; then it throws.
  /// The others get sums of no samples, and a PeerError at their next agreement. No rank changes a variable, a slot or
  /// a counter.
  struct Computation {
    /// Sums over the ranks that the computation makes on its way, in order.
    using Sums = detail::SumList;

    /// Calls AgreedStep::ready for each variable, makes each of `sums`, and returns this rank's part of the StepSums.
    std::function<StepSums(AgreedStep&)> compute;
    Sums sums = {};
  };

  class Audit;  ///< audit.hpp

  /// What a step may be asked for, without a further agreement. Everything must outlive the call.
  struct Request {
    /// Any range of gradients, to which it refers, or a list in braces, which must be written in the call.
    struct List : std::span<const Gradient> {
      using std::span<const Gradient>::span;
      List(std::span<const Gradient> list) : span{list} {}
      List(std::initializer_list<Gradient> list) : span{list.begin(), list.size()} {}
    };

    List gradients = {};

    /// This rank's numbers; a computation returns them instead (InvalidArgument for both). The sum of the gradients is
    /// divided by the sum of the weights; if that is 0, nothing is applied. Without both, the caller scales the loss.
    Own own = {};

    /// Computes the gradients, `statistics`, `integers` and own numbers after the agreement; if empty, they are ready
    /// at the call.
    Computation computation = {};

    /// Numbers on the device of the variables, as many and of one type on every rank; become their sums over the
    /// replicas, added up as the gradients are.
    TensorView statistics = {};

    /// Says that the gradients and numbers of each rank are the sums over its share of so many shards
    /// (Range::of_rank), added up by FixedOrderAccumulator. The step then has the same bits on any number of ranks. The
    /// same on every rank. If 0, each rank brings a part of its own, and the bits depend on the number of ranks.
    /// InvalidArgument for fewer shards than ranks, and for another number than the audit's.
    int shards = 0;

    /// As many on every rank; become their sums over the replicas, modulo 2^64.
    std::span<std::int64_t> integers = {};

    /// Whether to apply the step; on every rank or on none. Called on every rank once `integers` are sums, so that all
    /// give the same answer, and before anything that outlasts the step changes. Must neither communicate nor throw. If
    /// it returns false, the step is not applied, and its sums have no samples.
    std::function<bool()> apply_only_if = {};

    /// Audits the step if it is its turn. Throws as Audit says.
    Audit* audit = nullptr;
  };

  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// LOCAL; call it on every rank. Creates the state for `variables` that does not exist yet, with its values before
  /// the first step. Steps do so themselves; a program that restores a checkpoint calls it before, as every value needs
  /// its place. ContextError for variables without memory; InvalidArgument for variables that apply_gradients refuses,
  /// and for a name or a slot that another optimizer has.
  void prepare(Strategy& strategy, const detail::VariableList& variables, Here here = Here::current()) const;

  /// LOCAL. Steps counted so far in `strategy` under this optimizer's name, which set the learning rate; before its
  /// first use there, under the name that it would get now. A call without variables, or of no weight, does not count.
  ///
  /// The first use in a strategy, by `prepare` or by a step, fixes the name there: the one that the optimizer was made
  /// with or, without one, the first free of "optimizer", "optimizer_1", …. So every rank must first use its optimizers
  /// in the same order. An optimizer that is destroyed frees its name, and a later one of that name continues the
  /// count: it may be created again in each epoch, or after a checkpoint was restored. InvalidArgument, on this rank
  /// and before the agreement, if another live optimizer of the strategy has the name, or keeps a slot of the same name
  /// for one of the variables, which they would share. One without slots, such as plain Sgd, may update any variable.
  std::int64_t steps(Strategy& strategy) const;

  /// LOCAL. The learning rate of the last step; 0 before the first.
  double learning_rate() const { return last_.learning_rate; }

  /// LOCAL. The global norm of the last step's gradient, before clipping (Rules::clip_norm); 0 before the first step,
  /// and after a call that was not a step. If the step did not clip, may read the gradients' memory in the store, which
  /// must still hold the sums; on a GPU, waits for it.
  double gradient_norm();

  /// Applies the sum of the replicas' gradients. With `own`, these are sums over the replica's samples, and their sum
  /// is divided by all samples, or by their weight. So replicas with fewer samples, or none, count for what they
  /// brought. Returns the sums over the replicas, the same on every rank; loss and weight are added up as the gradients
  /// are.
  template <std::convertible_to<std::span<const Gradient>> List = std::initializer_list<Gradient>>
  StepSums apply_gradients(ReplicaContext& context, const List& gradients, const Own& own = {},
                           Here here = Here::current()) {
    return apply_gradients(context, Request{.gradients = gradients, .own = own}, here);
  }

  /// The same for everything else that a step may be asked for.
  StepSums apply_gradients(ReplicaContext& context, const Request& request, Here here = Here::current());

  /// Applies gradients that are already the same on every rank, unscaled: mean gradients that a program has reduced
  /// before. Agrees on the step, and sends no gradients.
  template <std::convertible_to<std::span<const Gradient>> List = std::initializer_list<Gradient>>
  void apply_reduced_gradients(ReplicaContext& context, const List& gradients, Here here = Here::current()) {
    apply_reduced(context, gradients, here);
  }

 protected:
  /// Options of every optimizer.
  struct Rules {
    LearningRate learning_rate;
    /// For variables of two or more dimensions. Biases, and the gains and offsets of norms, have one dimension and do
    /// not decay.
    double weight_decay = 0;
    /// Scales a step's gradient down to this global norm if it is longer. The norm is the root of the sum of squares
    /// over all variables' gradients, each the sum over the replicas divided by the weight of the samples. They are
    /// added up in the order given to apply_gradients. A norm that is not finite scales nothing: the fault reaches the
    /// variables and shows in the loss.
    std::optional<double> clip_norm = {};
    /// The name under which the optimizer counts its steps. If empty, the first free of "optimizer", "optimizer_1", …
    std::string name = {};
    /// The optimizer's other options as text, which the ranks compare: "momentum 0.9".
    std::string settings = {};
    /// Whether cosines and powers have the same bits on every machine, as all that portable kernels compute
    /// (Kernels::is_portable), or are the C library's.
    bool portable = false;
  };

  /// The arithmetic of lockstep's own optimizers on a device.
  using Kernels = detail::UpdateKernels;

  /// Null `kernels` are lockstep's for the device of the variables. InvalidArgument unless the weight decay is 0 or
  /// more, the norm is positive, and both are finite.
  explicit Optimizer(Rules rules, std::shared_ptr<const Kernels> kernels = nullptr);

  /// The numbers of a step: its learning rate, and what to divide the sums in the gradients by.
  using UpdateStep = detail::UpdateStep;

  /// Names of the slots that `update` uses.
  virtual std::vector<std::string_view> slots() const = 0;

  /// LOCAL. One step on the variables of `range`, in one pass. `range.gradients` holds the sum over the replicas;
  /// `step` says how to scale it. Must be a function of these and of the slots alone.
  virtual void update(const Kernels& kernels, const VariableStore::FlatRange& range, const UpdateStep& step) = 0;

  /// Whether `update` changes nothing where the gradient is zero, without weight decay. If so, and if a variable's
  /// gradient is slices, `update` is called only for the rows that they name; where the ranks share the update and the
  /// optimizer has slots, it is called for all of a rank's part.
  virtual bool keeps_zero_gradients() const { return false; }

  /// Whether `update` computes each element from its own value, gradient and slots alone, so that a range may be cut
  /// anywhere, and several threads may call `update` for its parts at once. ReductionOptions::shard_optimizer needs it;
  /// with FitOptions::threads, a rank's threads then share the update.
  virtual bool updates_by_element() const { return false; }

 private:
  friend class TowerOptimizer;
  class Places;
  class Plan;
  class StepOf;
  struct How;
  struct Scale;

  const Plan& plan_for(Strategy& strategy, std::span<const Gradient> gradients, const detail::Call& call);
  std::string text_of(const Plan& plan, const Request& request, const How& how) const;
  StepSums apply(ReplicaContext& context, const Request& request, const How& how, const Here& here);
  void apply_reduced(ReplicaContext& context, std::span<const Gradient> gradients, const Here& here);
  void prepare_slots(const VariableStore::FlatRange& range, int rank) const;
  void require_shareable(std::span<const VariableStore::FlatRange> ranges, const detail::Call& call) const;
  void step(const Scale& scale, std::span<const IndexedSlices> rows);
  void update_together(const Plan& plan, const UpdateStep& step, const detail::StepThreads& threads);
  const Kernels& kernels_for(const Plan& plan);
  double rate_at(std::int64_t step) const;
  double clip_factor();

  /// Results of the last step.
  struct Last {
    std::shared_ptr<const Plan> plan;  ///< null before the first step
    double learning_rate = 0;
    double divisor = 1;                        ///< the store holds this many times the gradient
    std::optional<double> gradient_norm = {};  ///< once it was asked for
  };

  Rules rules_;
  std::unique_ptr<Places> places_;          ///< its name in each strategy
  std::string settings_;                    ///< all options but the learning rate, as the ranks compare them
  std::shared_ptr<const Kernels> kernels_;  ///< chosen by the first step if none were given
  std::shared_ptr<const Plan> plan_;  ///< of the last call, since most programs give the same variables every time
  Last last_;
};

}  // namespace lockstep
