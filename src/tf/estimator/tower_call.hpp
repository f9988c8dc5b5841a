// One call of a replicated model on this rank: what the tower made, and what the ranks agree on in it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/tf/estimator/replicate_model_fn.hpp>

#include "sync/optim/optimizer_guard.hpp"

namespace lockstep::detail {

/// "Mode::train". InvalidArgument for a number that is no mode.
std::string_view name_of(EstimatorSpec::Mode mode);

/// What lasts from call to call. The names are those that model functions asked for, in the order of creation.
struct ReplicatedTowers::State {
  StrategyAddress address;
  ReplicateOptions options;
  std::vector<std::pair<std::string, MirroredVariable>> variables = {};
  std::vector<std::pair<std::string, SyncOnReadVariable>> accumulators = {};
};

/// In replica context, on every rank.
class TowerCall {
 public:
  TowerCall(ReplicatedTowers::State& model, ReplicaContext& context, EstimatorSpec::Mode mode, const Here& here);

  EstimatorSpec::Mode mode() const { return mode_; }
  ReplicaContext& context() const { return context_; }
  int replicas() const { return context_.num_replicas_in_sync(); }

  /// Whether losses and gradients are divided by the number of replicas.
  bool divides() const;

  MirroredVariable variable(Variable::Options options, const std::function<Tensor()>& initial, const Here& here);
  SyncOnReadVariable accumulator(const std::string& name, const Shape& shape, DType dtype, const Here& here);

  /// COLL. This rank's gradients of the variables that any rank has one of: zeros, or no rows, where it has none. All
  /// ranks count the same global step.
  std::vector<Optimizer::Gradient> complete(std::span<const Tower::Gradient> gradients,
                                            const std::optional<Variable>& global_step);

  /// COLL. Calls the model function, and makes its specification that of all replicas.
  EstimatorSpec finish(const std::function<EstimatorSpec(Tower&)>& model_fn);

 private:
  struct Stage;
  std::optional<int> holder_of(std::int64_t number) const;
  void agree(const Stage& stage);
  Stage end_of(const EstimatorSpec& spec) const;
  std::vector<std::int64_t> sum_kinds(std::span<const Tower::Gradient> gradients);
  void reduce(EstimatorSpec& spec);

  ReplicatedTowers::State& model_;
  ReplicaContext& context_;
  EstimatorSpec::Mode mode_;
  Here here_;
  OptimizerGuard guard_;
};

}  // namespace lockstep::detail
