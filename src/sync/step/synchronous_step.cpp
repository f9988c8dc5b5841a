#include "sync/step/synchronous_step.hpp"

#include <cstdint>
#include <exception>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/busy_clock.hpp"
#include "core/control/tag.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// One rank in a step.
class StepUnderWay {
 public:
  StepUnderWay(const SynchronousStep& step, Strategy& strategy, Reductions& reductions, AgreedRegion* region)
      : step_{step},
        job_{inside(strategy).group().job()},
        stream_{strategy.store().stream()},
        region_{region},
        of_shards_{reductions, step.shards},
        sums_{reductions, region},
        declared_{reductions, step.sums, stream_, step.buckets, region} {}

  /// Of gradients that are computed now. Returns whether there was an update.
  bool compute_and_update() {
    try {
      step_.compute(declared_);
      region_->require_no_agreement();
      require_complete();
    } catch (...) {
      failure_ = std::current_exception();
      job_.complete_or_abort([&] { declared_.make_the_rest(); });
    }
    // The host's plane and a GPU's never move tensors at once, so the ranks count once the host has waited.
    job_.complete_or_abort([&] {
      sum();
      if (step_.measure) step_.measure();
      stream_.synchronize();
    });
    complete();
    return count_and_decide() && update();
  }

  /// Of gradients that were there.
  bool update_ready() {
    if (!count_and_decide()) return false;
    declared_.all_ready();
    sum();
    if (step_.measure) step_.measure();
    return update();
  }

  const std::exception_ptr& failure() const { return failure_; }

  /// The number of ranks that have failed.
  std::int64_t failures() const { return failures_; }

 private:
  void require_complete() const {
    declared_.require_all_made();
    if (const auto piece = declared_.first_unready())
      throw InvalidArgument{
          fmt::format("the gradient of variable {} was never ready in this step", step_.label_of(*piece))};
  }

  void sum() {
    const BusyClock::Waiting for_all;  // one wait, however many sums
    declared_.finish();
    if (step_.sum) step_.sum(sums_);
  }

  void complete() {
    if (failure_ || !step_.complete) return;
    try {
      step_.complete();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  bool count_and_decide() {
    failures_ = failure_ ? 1 : 0;
    if (step_.count || step_.compute)
      sums_.make([&](Reductions& reductions) {
        std::vector<TensorView> views = step_.count ? step_.count() : std::vector<TensorView>{};
        if (step_.compute) views.push_back({reinterpret_cast<std::byte*>(&failures_), {1}, DType::i64});
        if (!views.empty()) reductions.all_reduce(ReduceOp::sum, views);
      });
    return failures_ == 0 && (!step_.decide || step_.decide());
  }

  bool update() {
    if (step_.update) step_.update(sums_);
    return true;
  }

  const SynchronousStep& step_;
  Job& job_;
  Stream& stream_;
  AgreedRegion* region_;  ///< null if gradients were ready before the agreement
  Reductions::OfShards of_shards_;
  RankSums sums_;
  DeclaredSums declared_;
  std::exception_ptr failure_;  ///< of this rank
  std::int64_t failures_ = 0;   ///< this rank's, and once they are counted those of all
};

}  // namespace

void RankSums::make(const std::function<void(Reductions& reductions)>& make) const {
  region_ ? region_->wait_in([&] { make(reductions_); }) : make(reductions_);
}

bool make_step(ReplicaContext& context, const SynchronousStep& step, const Here& here) {
  Strategy& strategy = context.strategy();
  bool has_updated = false;
  std::exception_ptr failure;
  std::int64_t failures = 0;
  if (step.compute) {
    const auto compute = [&](Reductions& reductions, AgreedRegion& region) {
      StepUnderWay under_way{step, strategy, reductions, &region};
      has_updated = under_way.compute_and_update();
      failure = under_way.failure();
      failures = under_way.failures();
      // Thrown from here, it is a failure of the computation, and not of what follows it.
      if (failure && step.close.empty()) std::rethrow_exception(failure);
    };
    inside(context).declared_step(step.agree, compute, here);
  } else {
    const auto update = [&](Reductions& reductions) {
      has_updated = StepUnderWay{step, strategy, reductions, nullptr}.update_ready();
    };
    inside(context).declared_merge(step.agree, update, here);
  }
  if (failures > 0 && !step.close.empty()) {
    if (failure) inside(strategy).group().meeting().fail(failure);
    inside(strategy).agree(TagKind::merge, here, step.close);
  }
  if (failures == 0 && step.audit) step.audit();
  return has_updated;
}

}  // namespace lockstep
