// What lockstep's own code does with a strategy, its variables and its replica contexts beyond what programs may:
// `inside(strategy).group()`.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/parts.hpp"
#include "core/order/shares.hpp"
#include "sync/strategy/held_slices.hpp"
#include "sync/strategy/variable_state.hpp"

namespace lockstep {

template <>
struct detail::Inside<Strategy> {
  Strategy& strategy;

  static Strategy make(ReplicaGroup& group, const ReductionOptions& reductions) { return Strategy{group, reductions}; }

  /// Which strategy of the job it is, as tags name it.
  int id() const;

  /// Whether this strategy created the variable.
  bool created(const Variable& variable) const;

  /// The ranks, and how they meet.
  ReplicaGroup& group() const { return strategy.group(); }

  /// The data plane, for what an agreement covers. Never throws: a failure ends the job.
  Reductions& reductions() const { return strategy.reductions(); }

  /// LOCAL, in any context. ContextError, which names `here`, while this rank's stream is being captured into a CUDA
  /// graph. For code that enqueues work before it meets the other ranks.
  void require_not_captured(const Here& here = Here::current()) const { strategy.require_not_captured(here); }

  /// COLL, blocking, in any context. One agreement in this strategy's name. ContextError, before any communication,
  /// while the stream is being captured into a CUDA graph.
  void agree(TagKind kind, const Here& here, std::string_view text) const { strategy.agree(kind, here, text); }
  void agree(TagKind kind, const Here& here, std::string_view text, const Comparison& comparison) const {
    strategy.agree(kind, here, text, comparison);
  }
};

/// COLL, in cross-replica context: agrees on a text, and how the ranks share the shards (Reductions::shares).
/// `has_threads` says whether this rank has.
LOCKSTEP_PARTS_API Shares agree_on_shares(Strategy& strategy, int shards, bool has_threads, std::string_view text,
                                          const Here& here);

template <>
struct detail::Inside<VariableStore> {
  VariableStore& store;

  /// The record that the live optimizers of these variables share. Null until one is used.
  std::shared_ptr<LiveOptimizers>& live_optimizers() const { return store.live_optimizers_; }

  /// How far `fit` has come, also by a restored checkpoint. Null until there is something to say.
  std::shared_ptr<FitProgress>& fit_progress() const { return store.fit_progress_; }

  // The strategy makes the agreements.

  /// The Variable::name of the next variable that asks for the name `asked`.
  std::string unique_name(const std::string& asked) const { return store.unique_name(asked); }
  void add(std::shared_ptr<VariableState> variable) const { store.add(std::move(variable)); }
  /// In order of creation.
  const std::vector<std::shared_ptr<VariableState>>& variables() const { return store.variables_; }
  bool has_unsealed() const { return store.sealed_ < store.variables_.size(); }
  /// The sizes, in bytes, of the flat buffers for gradients that the next `seal` needs. The same on every rank.
  std::vector<std::size_t> gradient_bytes() const { return store.gradient_bytes(); }
  /// Lays out the unsealed variables in reverse order of creation (roughly the order in which a backward pass finishes)
  /// and copies their initial values. Returns the flat values of the new memory. `gradients` are zeroed buffers, which
  /// the variables keep; the store allocates those that are empty or missing.
  std::vector<TensorView> seal(std::vector<Buffer> gradients = {}) const { return store.seal(std::move(gradients)); }
  /// Moves the gradients of the last `seal` to memory that the store allocates, and resets them to zero.
  void reallocate_gradients() const { store.reallocate_gradients(); }
  /// The flat values, for writing, of the sealed mirrored variables that every rank updates.
  std::vector<TensorView> mirrored_values() const { return store.mirrored_values(); }
  /// The same of the variables that one rank alone updates. The key is that rank.
  std::map<int, std::vector<TensorView>> held_values() const { return store.held_values(); }
  /// All optimizer state: the slots of variables in order of creation, the counters, then that of other libraries.
  std::vector<OptimizerState> optimizer_state() const { return store.optimizer_state(); }
  /// The same state as a few pieces of flat memory, except what one rank alone holds and what is held in slices.
  std::vector<TensorView> optimizer_values() const { return store.optimizer_values(); }

  /// Before the first `seal`: the ranks share the update of trainable variables that all of them update, if those that
  /// are sealed together take more than 64 KiB.
  void share_updates(Sharding sharding) const { store.share_updates(std::move(sharding)); }

  /// Whether `share_updates` was called.
  bool shares_updates() const { return store.sharding_ != nullptr; }

  /// `values` are asked from here on, as long as they live.
  void add_external_values(const std::shared_ptr<ExternalValues>& values) const { store.add_external_values(values); }

  /// Those that live.
  std::vector<std::shared_ptr<ExternalValues>> external_values() const { return store.external_values(); }

  // Other libraries may have replaced the memory of variables. So call `bring_values_home` before values are read or
  // written through `values` or `ranges`, `bring_home` if optimizer state is too, and `written` after a write. They
  // throw what the other library throws if the store cannot hold what it has made of them.
  void bring_values_home() const { store.bring_values_home(); }
  void bring_home() const { store.bring_home(); }
  void written() const { store.written(); }
};

template <>
struct detail::Inside<Variable> {
  const Variable& variable;

  VariableState& state() const { return *variable.state_; }

  template <class Handle>
  static Handle make(std::shared_ptr<VariableState> state) {
    return Handle{std::move(state)};
  }
};

template <>
struct detail::Inside<Scope> {
  static Scope make(const Frame& frame) { return Scope{frame}; }
};

template <>
struct detail::Inside<ReplicaContext> {
  ReplicaContext& context;

  /// Notes of optimizers on this run; null unless it is a first step (Strategy::attest_first).
  FirstStepNotes* first_step() const { return context.first_step_.get(); }

  /// COLL, blocking. A merge_call that knows in advance what it will reduce, so that one agreement covers both. `batch`
  /// describes the reductions, and the ranks compare it. `fn` must make exactly those on the `Reductions`, before
  /// anything that may throw. It runs in cross-replica context.
  void declared_merge(std::string_view batch, const std::function<void(Reductions&)>& fn,
                      Here here = Here::current()) const {
    context.declared_merge(batch, fn, here);
  }

  /// COLL, blocking. The same for reductions in the middle of a computation: agrees, and calls `fn` in replica context.
  /// Until that returns, any other agreement is a ContextError on this rank. `fn` must make the reductions even if the
  /// computation fails, and throw its exception after them.
  void declared_step(std::string_view batch, const std::function<void(Reductions&, AgreedRegion&)>& fn,
                     Here here = Here::current()) const {
    context.declared_step(batch, fn, here);
  }

  /// COLL. As ReplicaContext::all_reduce_async of `leaves`, which are arranged as `structure` says.
  std::shared_ptr<StartedReduction> start(ReduceOp op, std::vector<Leaf> leaves, std::string_view structure,
                                          const Here& here) const {
    return context.start(op, std::move(leaves), structure, here);
  }

  /// The context of a thread outside every scope.
  static ReplicaContext of_default(Strategy& strategy) { return ReplicaContext{StrategyAddress{strategy}}; }

  /// Forgets a reduction whose result was taken.
  void erase(const std::shared_ptr<StartedReduction>& started) const { std::erase(context.started_, started); }
};

/// COLL on the ranks of `group`, which must outlive the result, but not agreed: options are not compared.
/// InvalidArgument for invalid ones (ReductionOptions).
inline Strategy strategy_on(ReplicaGroup& group, const ReductionOptions& reductions = {}) {
  return detail::Inside<Strategy>::make(group, reductions);
}

/// A handle of a variable: MirroredVariable or SyncOnReadVariable.
template <class Handle>
Handle handle_of(std::shared_ptr<detail::VariableState> state) {
  return detail::Inside<Variable>::make<Handle>(std::move(state));
}

inline detail::Inside<Strategy> inside(Strategy& strategy) {
  return {strategy};
}
inline detail::Inside<VariableStore> inside(VariableStore& store) {
  return {store};
}
inline detail::Inside<Variable> inside(const Variable& variable) {
  return {variable};
}
inline detail::Inside<ReplicaContext> inside(ReplicaContext& context) {
  return {context};
}

}  // namespace lockstep
