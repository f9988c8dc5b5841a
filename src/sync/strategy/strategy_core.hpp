// What a strategy holds, for the sources of this layer.
#pragma once

#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "sync/group/replica_group.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/first_steps.hpp"
#include "sync/strategy/held_slices.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {

namespace detail {

/// The strategy that made the variable. ContextError, which begins with `call`, if it is gone.
Strategy& strategy_of(const Variable& variable, const Call& call = {});

}  // namespace detail

struct Strategy::Core {
  std::shared_ptr<ReplicaGroup> shared_group;  ///< owns nothing if the group is the runtime's, which outlives it
  ReplicaGroup& group;
  std::unique_ptr<Reductions> reductions;
  int id;
  VariableStore store;
  std::shared_ptr<Strategy*> self;  ///< where the strategy is
  detail::FirstSteps first_steps;

  Core(std::shared_ptr<ReplicaGroup> ranks, const ReductionOptions& options, Strategy& handle)
      : shared_group{std::move(ranks)},
        group{*shared_group},
        reductions{group.make_reductions(options)},
        id{group.next_strategy()},
        store{group.stream()},
        self{std::make_shared<Strategy*>(&handle)} {
    if (options.shard_optimizer && group.size() > 1)
      inside(store).share_updates({reductions->packing(), reductions->slice_owners(), group.rank()});
  }
  Core(const Core&) = delete;
  ~Core() { *self = nullptr; }
};

}  // namespace lockstep
