// One synchronous step, as all ranks make it together. An optimizer's step, a backward pass of modules of LibTorch and
// the sums inside a pass that is accumulated are all described here, and made by one function.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>

#include "core/base/parts.hpp"
#include "core/control/meeting_point.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {

/// What a step adds up over the ranks besides its buckets.
class RankSums {
 public:
  /// If `region` is null, the agreement covers these sums. Both must outlive this object.
  RankSums(Reductions& reductions, AgreedRegion* region) : reductions_{reductions}, region_{region} {}

  /// COLL. `make` adds up by the reductions of the strategy: one wait for the others, however many sums it makes.
  LOCKSTEP_PARTS_API void make(const std::function<void(Reductions& reductions)>& make) const;

 private:
  Reductions& reductions_;
  AgreedRegion* region_;
};

/// The phases of a step, in order. An empty function is a phase that the step does not have.
///
/// A rank may fail in `compute` and in `complete`. It then brings zeros to all that was declared, so nobody waits for
/// it, and tells the others in `count`. Up to `decide`, no rank changes anything that outlasts the step, so a step that
/// fails changes nothing.
///
/// A program may have computed its gradients before the step: then there is no `compute`. What the ranks count is known
/// by then, so they count and decide first, and sum afterwards. The host need not wait for its GPU.
struct SynchronousStep {
  /// Agree. What the ranks compare: which step this is, of which variables, and with which sums.
  std::string agree;

  /// Whose sums the ranks bring to all sums of the step (Reductions::OfShards).
  int shards = 0;

  /// Compute, in replica context, where any other agreement is a ContextError from now on. Makes each of `sums`, in
  /// order, and says when pieces of `buckets` are ready. They travel while it continues.
  std::function<void(DeclaredSums& sums)> compute = {};
  SumList sums = {};
  std::span<const GradientBucket> buckets = {};
  std::function<std::string(std::size_t piece)> label_of = {};  ///< of a variable, for messages

  /// Sum. The buckets arrive; then COLL, whatever is summed beside them.
  std::function<void(const RankSums& sums)> sum = {};

  /// Measure. LOCAL; enqueues what is to be known of the sums, such as their norm. If there was something to compute,
  /// the host then waits for the stream, once in a step.
  std::function<void()> measure = {};

  /// LOCAL. Completes what this rank brings to `count` by what was known only when its GPU was done. May fail.
  std::function<void()> complete = {};

  /// Count. The last sum: numbers of this rank in the host's memory, which become those of all.
  std::function<std::vector<TensorView>()> count = {};

  /// Decide, LOCAL, from what was counted, so every rank decides alike: whether there is an update.
  std::function<bool()> decide = {};

  /// Update, COLL: changes variables, or leaves the sums where another optimizer finds them. May make further sums.
  std::function<void(const RankSums& sums)> update = {};

  /// Close. What the ranks call the agreement in which all others learn of a failure, before their programs continue.
  /// If empty, they learn of it in the next one of the program.
  std::string close = {};

  /// Audit, COLL, unless a rank failed: finds out who is to blame if what was counted says that two ranks differ.
  std::function<void()> audit = {};
};

/// COLL, blocking, with one agreement, and another one if the step failed and `close` names it. Throws what this rank's
/// computation throws. Returns whether there was an update.
LOCKSTEP_PARTS_API bool make_step(ReplicaContext& context, const SynchronousStep& step, const Here& here);

}  // namespace lockstep
