#include "strategy/started_reduction.hpp"

#include <utility>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "control/meeting_point.hpp"
#include "group/replica_group.hpp"
#include "reduce/reductions.hpp"

namespace lockstep::detail {

StartedReduction::StartedReduction(ReplicaContext& context, const Call& call, ReduceOp op, std::vector<Leaf> leaves)
    : context_{&context},
      name_{call.name},
      here_{call.here},
      leaves_{std::move(leaves)},
      reduced_{call, op, leaves_, context.strategy().stream()} {}

void StartedReduction::start(Reductions& reductions) {
  reductions_ = &reductions;
  dense_ = reduced_.start_dense(reductions);
}

void StartedReduction::finish() {
  finished_ = true;
  try {
    dense_->wait();
    dense_.reset();
    // Ranks exchange the numbers of rows first, so this blocks the host on every device.
    reduced_.all_reduce_slices(*reductions_);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void StartedReduction::require_result() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::vector<Leaf> wait_for(std::shared_ptr<StartedReduction>& started, const Here& here) {
  const Call call{"PendingReduction::wait", here};
  if (!started) throw ContextError{call.text() + "its result has been taken, or it has been moved from"};
  ReplicaContext* const context = started->context();
  if (!context) throw ContextError{call.text() + "the run that started it is over"};
  require_current(*context, call);
  Strategy& strategy = context->strategy();
  strategy.require_not_captured();
  if (!started->is_finished()) strategy.group().meeting().make_open_sum();
  context->forget(*started);
  started->require_result();
  return std::exchange(started, nullptr)->take_leaves();
}

}  // namespace lockstep::detail
