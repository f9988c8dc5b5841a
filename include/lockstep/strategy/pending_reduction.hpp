// The result of a reduction that does not wait.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <lockstep/base/here.hpp>
#include <lockstep/values/nest.hpp>

namespace lockstep {

class ReplicaContext;

namespace detail {

class StartedReduction;

/// The reduced leaves of `started`, which becomes null. As PendingReduction::wait.
std::vector<Leaf> wait_for(std::shared_ptr<StartedReduction>& started, const Here& here);

}  // namespace detail

/// What ReplicaContext::all_reduce_async returns. Wait for it in the run that started it, in any order.
template <Reducible Nest>
class [[nodiscard("nothing can wait for this reduction: keep what all_reduce_async returns")]] PendingReduction {
 public:
  /// Blocks as `all_reduce` does, unless the sum has been made already, and returns what `all_reduce` would have
  /// returned. Costs no agreement, so ranks may wait at different places. Call it once. Throws what the sum threw, even
  /// if another call has thrown it before. ContextError if called again, outside of the run that started it, in a merge
  /// function, or while the stream is being captured into a CUDA graph.
  Nest wait(Here here = Here::current()) {
    return detail::with_leaves(like_, detail::wait_for(started_, here));
  }

 private:
  friend class ReplicaContext;
  PendingReduction(Nest like, std::shared_ptr<detail::StartedReduction> started)
      : like_{std::move(like)}, started_{std::move(started)} {}

  Nest like_;
  std::shared_ptr<detail::StartedReduction> started_;  ///< null after wait
};

}  // namespace lockstep
