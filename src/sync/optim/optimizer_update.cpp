// The part of a step that each rank makes alone: from sums that are the same on every rank to new values.
#include <cmath>
#include <cstddef>

#include <lockstep/sync/optim/optimizer.hpp>

#include "core/control/busy_clock.hpp"
#include "core/device/stream_spans.hpp"
#include "sync/optim/computed_step.hpp"
#include "sync/optim/live_optimizers.hpp"
#include "sync/optim/parts_of_threads.hpp"
#include "sync/optim/plan.hpp"
#include "sync/strategy/variable_state.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep {

double Optimizer::gradient_norm() {
  if (!last_.plan) return 0;
  if (!last_.gradient_norm)
    last_.gradient_norm = std::sqrt(kernels_->sum_of_squares(last_.plan->homes())) / last_.divisor;
  return *last_.gradient_norm;
}

/// The factor by which to scale the gradient down. Every rank computes it from the same bytes, so nobody sends it.
double Optimizer::clip_factor() {
  if (!rules_.clip_norm) return 1;
  const double norm = gradient_norm();
  return norm > *rules_.clip_norm && std::isfinite(norm) ? *rules_.clip_norm / norm : 1;
}

double Optimizer::rate_at(std::int64_t step) const {
  return rules_.portable ? rules_.learning_rate.portable_at(step) : rules_.learning_rate.at(step);
}

const Optimizer::Kernels& Optimizer::kernels_for(const Plan& plan) {
  if (!kernels_)
    kernels_ = detail::make_update_kernels(
        rules_.portable ? detail::Functions::portable : detail::Functions::of_library, plan.store().stream());
  return *kernels_;
}

/// With the plan of this call.
void Optimizer::step(const Scale& scale, std::span<const IndexedSlices> rows) {
  const Plan& plan = *plan_;
  const double divisor = scale.divisor;
  if (plan.is_empty() || divisor == 0) {
    last_.gradient_norm = 0;  // the memory no longer holds the sums of the last step
    return;
  }
  const BusyClock::During updating{BusyClock::Part::optimizer};
  const StreamSpan span{plan.store().stream(), trace::Kind::layer, "optimizer"};
  const Kernels& kernels = kernels_for(plan);
  std::int64_t& made = plan.store().counter(places_->counter_in(plan.store()));
  last_ = {.plan = plan_, .learning_rate = rate_at(made), .divisor = divisor};
  if (scale.squares) last_.gradient_norm = std::sqrt(*scale.squares) / divisor;
  UpdateStep step{
      .learning_rate = last_.learning_rate, .divisor = divisor, .factor = clip_factor(), .number = made + 1};
  for (const VariableStore::FlatRange& range : plan.shared_ranges()) prepare_slots(range, plan.rank());
  if (scale.threads) update_together(plan, step, *scale.threads);
  for (const detail::RangeUpdate& each : plan.updates()) {
    step.weight_decay = each.decayed ? rules_.weight_decay : 0;
    if (!each.range.is_held_by(plan.rank())) {
      prepare_slots(each.range, plan.rank());
    } else if (each.rows_of) {
      for (const RowRun& run : runs_of(rows[*each.rows_of])) {
        const VariableStore::FlatRange rows_of_run = detail::part_of(each.range, run.first, run.count);
        update(kernels, rows_of_run, step);
        rows_of_run.values_changed();
      }
    } else {
      if (!scale.threads) update(kernels, each.range, step);
      if (!each.range.segment->slices) each.range.values_changed();  // otherwise once all slices are there
    }
  }
  ++made;
}

/// All ranges that this rank holds, but for named rows, each cut among the threads.
void Optimizer::update_together(const Plan& plan, const UpdateStep& step, const detail::StepThreads& threads) {
  // The threads find slots; none of them may make one.
  for (const detail::RangeUpdate& each : plan.updates()) prepare_slots(each.range, plan.rank());
  const Kernels& kernels = kernels_for(plan);
  threads.run([&](std::size_t thread) {
    UpdateStep own = step;
    for (const detail::RangeUpdate& each : plan.updates()) {
      if (!each.range.is_held_by(plan.rank()) || each.rows_of) continue;
      const VariableStore::FlatRange part = detail::part_for(each.range, thread, threads.count);
      own.weight_decay = each.decayed ? rules_.weight_decay : 0;
      if (part.values.count() > 0) update(kernels, part, own);
    }
  });
}

}  // namespace lockstep
