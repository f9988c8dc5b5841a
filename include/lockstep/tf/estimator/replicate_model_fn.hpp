// Replicated model functions: a function that computes loss, gradients, predictions and metrics of a batch on one
// replica becomes one that does so on all of them, each with its piece of the batch.
//
//   auto model = replicate_model_fn<Tensor, Tensor>(strategy, classifier);
//   // On every rank, with the whole batch:
//   const EstimatorSpec step = model(images, labels, EstimatorSpec::Mode::train);
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/sparse_tensor.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/estimator/estimator_spec.hpp>
#include <lockstep/tf/estimator/tower.hpp>

namespace lockstep {

struct ReplicateOptions {
  /// How the towers' losses are combined. `sum` is for losses that are sums over samples; they are added up. All other
  /// losses are means; they are added up and divided by the number of replicas. Gradients are combined in the same way.
  enum class Reduction : std::uint8_t {
    none,  ///< refused
    sum,
    mean,
    sum_over_batch_size,
    sum_by_nonzero_weights,
  };

  /// Who updates a variable that a tower made, and holds its optimizer state. All placements end in the same bytes.
  enum class Placement : std::uint8_t {
    mirrored,     ///< every rank
    chief,        ///< rank 0, which sends the value to the others
    round_robin,  ///< rank k mod n of n ranks, for the k-th variable that the model made, trainable or not
  };

  Reduction reduction = Reduction::sum_by_nonzero_weights;
  Placement placement = Placement::mirrored;
};

namespace detail {

template <class T>
inline constexpr bool has_rows =
    is_nest<T>([]<class Leaf>() { return std::same_as<Leaf, Tensor> || std::same_as<Leaf, SparseTensor>; });

/// What model functions take: Tensor and SparseTensor, and nests of them. Samples are rows, along the first dimension.
template <class T>
concept BatchOfRows = has_rows<T>;

/// For model functions that take no parameters.
struct NoParams {};

template <class Fn, class... Arguments>
concept ReturnsSpec = requires(Fn& fn, Arguments&... arguments) {
  { fn(arguments...) } -> std::convertible_to<EstimatorSpec>;
};

/// A model function: `EstimatorSpec(Tower&, const F& features, const std::optional<L>& labels)`, perhaps with
/// parameters, `P&`, as the last argument.
template <class Fn, class F, class L, class P>
concept ModelFunctionFor = ReturnsSpec<Fn, Tower, const F, const std::optional<L>> ||
                           ReturnsSpec<Fn, Tower, const F, const std::optional<L>, P>;

/// The part of a replicated model that does not depend on types. Its strategy must outlive it, and may be moved.
class LOCKSTEP_API ReplicatedTowers {
 public:
  ReplicatedTowers(Strategy& strategy, const ReplicateOptions& options);
  ~ReplicatedTowers();

  /// Replaces each tensor of the features and labels by this rank's piece of it, and calls the model function.
  EstimatorSpec call(EstimatorSpec::Mode mode, AnyValue features, const std::optional<AnyValue>& labels,
                     const std::function<EstimatorSpec(Tower&)>& model_fn, const Here& here);
  void reset_metrics();
  std::vector<MirroredVariable> variables() const;
  std::vector<MirroredVariable> trainable_variables() const;

 private:
  friend class TowerCall;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

/// The result of replicate_model_fn. Move-only. Its variables belong to the strategy and outlive it.
template <detail::BatchOfRows F, detail::BatchOfRows L, std::copy_constructible P = detail::NoParams>
class ReplicatedModel {
 public:
  using Fn = std::function<EstimatorSpec(Tower&, const F&, const std::optional<L>&, P&)>;

  ReplicatedModel(Strategy& strategy, Fn fn, const ReplicateOptions& options)
      : towers_{std::make_unique<detail::ReplicatedTowers>(strategy, options)}, fn_{std::move(fn)} {}

  /// COLL, blocking, in cross-replica or default context: one Strategy::run, in which each rank calls the model
  /// function with its own copy of `params` and its piece of the batch. Every rank passes the whole batch: tensors, or
  /// nests of them, with samples along the first dimension. Replica r of n gets the r-th of n equal pieces, which share
  /// the batch's memory. A SparseTensor is cut by its own rows, unevenly if the replicas do not divide them. One
  /// replica gets the batch itself, and its specification is returned unchanged, with the metrics.
  ///
  /// Returns this rank's specification, with these changes:
  /// - train, evaluate: `loss` is that of all replicas together, the same on every rank (ReplicateOptions::Reduction).
  /// - evaluate: `metrics` has the values from the sums over all replicas since the last reset, the same on every rank.
  /// - predict: the loss is this replica's, scaled. `predictions` and `export_outputs` are those of all replicas, on
  ///   every rank: rows in the order of ranks, `classes` stacked along a new first dimension (on one replica
  ///   without it). A key that some towers lack has the rows of the others.
  ///
  /// On this rank alone, and a PeerError on the others: what the model function throws, and InvalidArgument for an
  /// unknown mode, for dense tensors that have different numbers of rows or whose rows the replicas do not divide, for
  /// an invalid SparseTensor, for a loss that is not one number, for a metric without a function or of variables that
  /// are not summed, for predictions in Mode::evaluate or without rows, and where an optimizer without TowerOptimizer
  /// is used on several replicas. MismatchError on every rank if ranks differ in mode, options or the shapes of the
  /// batch, in their optimizer calls, in their metrics, in which of them have a loss, or in the kind, types or extents
  /// of what they predict and export. ContextError in replica context. After an error, the ranks are in step again in
  /// the next call.
  EstimatorSpec operator()(const F& features, const std::optional<L>& labels, EstimatorSpec::Mode mode,
                           const P& params = {}, Here here = Here::current()) {
    F own_features = features;
    std::optional<L> own_labels = labels;
    P own_params = params;
    std::optional<detail::AnyValue> any_labels;
    if (own_labels) any_labels.emplace(*own_labels);
    return towers_->call(
        mode, own_features, any_labels, [&](Tower& tower) { return fn_(tower, own_features, own_labels, own_params); },
        here);
  }

  /// LOCAL; call it on every rank, in cross-replica or default context. Sets the accumulators of the model's towers to
  /// zero, before the next evaluation. Call it after a failed one too.
  void reset_metrics() { towers_->reset_metrics(); }

  /// LOCAL. The variables that the towers have made so far, in the order of creation, without accumulators. A program
  /// that restores a checkpoint lets a first call make them, in any mode, and gives the trainable ones to
  /// Optimizer::prepare.
  std::vector<MirroredVariable> variables() const { return towers_->variables(); }
  std::vector<MirroredVariable> trainable_variables() const { return towers_->trainable_variables(); }

 private:
  std::unique_ptr<detail::ReplicatedTowers> towers_;
  Fn fn_;
};

/// LOCAL; call it on every rank, with the same options. Turns the model function `fn` into a function of global batches
/// with features F, labels L and parameters P. `fn` is an `EstimatorSpec(Tower&, const F& features, const
/// std::optional<L>& labels)`, optionally with parameters `P&` as the last argument. Features and labels are Tensor,
/// SparseTensor or nests of them, with one sample in each row of the first dimension. The strategy must outlive it, and
/// may be moved. The chief logs one line. InvalidArgument for Reduction::none, and for options that are none of the
/// above.
template <detail::BatchOfRows F, detail::BatchOfRows L, std::copy_constructible P = detail::NoParams,
          detail::ModelFunctionFor<F, L, P> ModelFn>
ReplicatedModel<F, L, P> replicate_model_fn(Strategy& strategy, ModelFn fn, const ReplicateOptions& options = {}) {
  if constexpr (std::is_invocable_v<ModelFn&, Tower&, const F&, const std::optional<L>&, P&>) {
    return {strategy, std::move(fn), options};
  } else {
    return {strategy,
            [fn = std::move(fn)](Tower& tower, const F& features, const std::optional<L>& labels, P&) mutable {
              return fn(tower, features, labels);
            },
            options};
  }
}

}  // namespace lockstep
