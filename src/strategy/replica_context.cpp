#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/replica_context.hpp>

#include "strategy/batch.hpp"
#include "strategy/context_stack.hpp"
#include "strategy/defaults.hpp"
#include "strategy/strategy_core.hpp"

namespace lockstep {

Strategy& ReplicaContext::strategy() const {
  return extended_.strategy();
}

int ReplicaContext::replica_id_in_sync_group() const {
  detail::require_current(*this);
  return strategy().core_->group.rank();
}

std::vector<std::string> ReplicaContext::devices() const {
  detail::require_current(*this);
  return {strategy().group().device_name()};
}

int ReplicaContext::num_replicas_in_sync() const {
  return strategy().num_replicas_in_sync();
}

void ReplicaContext::merge(std::string_view operands, const Here& here, const std::function<void(Strategy&)>& fn) {
  detail::require_current(*this);
  strategy().agree(TagKind::merge, here, operands);
  const detail::PushedFrame frame{{detail::Mode::cross_replica, &extended_}};
  fn(strategy());
}

void ReplicaContext::attest_at_end(std::vector<SyncOnReadVariable> alike) {
  detail::require_current(*this);
  if (detail::is_default(*this)) throw ContextError{"attest_at_end outside of run(): there is no end to compare at"};
  attested_at_end_ = std::move(alike);
}

void ReplicaContext::declared_merge(std::string_view batch, const std::function<void(CrossDeviceOps&)>& fn, Here here) {
  detail::require_current(*this);
  strategy().agree(TagKind::merge, here, batch);
  const detail::PushedFrame frame{{detail::Mode::cross_replica, &extended_}};
  fn(strategy().reductions());
}

void ReplicaContext::all_reduce_leaves(std::string_view method, ReduceOp op, std::vector<detail::Leaf>& leaves,
                                       std::string_view structure, const Here& here) {
  detail::require_current(*this);
  strategy().require_not_captured();
  detail::Batch batch{op, leaves, strategy().stream()};
  declared_merge(
      batch.text(method, structure), [&](CrossDeviceOps& reductions) { batch.all_reduce(reductions); }, here);
}

}  // namespace lockstep
