#include "apps/lockstep-bench/step_run.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <lockstep/models/fit/fit.hpp>

#include "models/ops/backends.hpp"
#include "sync/optim/gradient_pieces.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/reduce/messages.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::bench {
namespace {

/// Takes a lap after each step.
class Laps final : public Observer {
 public:
  explicit Laps(StepClock& clock) : clock_{clock} {}

  void on_step(const Step&) override { steps_.push_back(clock_.lap()); }

  std::vector<PartTimes> behind_first() const { return {steps_.begin() + 1, steps_.end()}; }

 private:
  StepClock& clock_;
  std::vector<PartTimes> steps_;
};

std::shared_ptr<const ops::Kernels> kernels_for(Strategy& strategy, const StepRun::Options& options) {
  const bool share = options.shards == strategy.num_replicas_in_sync();
  return ops::make_kernels(options.kernels, {share ? options.threads : 1}, strategy.stream());
}

}  // namespace

ReductionOptions timed_reductions(StepClock& clock, std::function<void()> meet, ReductionOptions reductions) {
  reductions.around = [&clock, meet = std::move(meet)](const std::function<void()>& collective) {
    const StepClock::During during{clock, Part::waiting};
    meet();
    clock.enter(Part::communication);
    collective();
  };
  return reductions;
}

StepRun::StepRun(Strategy strategy, StepClock& clock, const RandomSamples& samples, const Options& options)
    : strategy_{std::move(strategy)},
      clock_{clock},
      samples_{samples.source()},
      options_{options},
      evaluated_{options.model, 1},
      kernels_{kernels_for(strategy_, options)},
      model_{make_model(options.model, options.hidden, strategy_, kernels_, options.precision)},
      optimizer_{make_optimizer(options.model)},
      timed_{*model_, clock} {
  if (!options.checkpoints.empty())
    checkpoints_.emplace(strategy_, CheckpointManager::Options{.folder = options.checkpoints, .keep = 1});
}

std::int64_t StepRun::parameters() const {
  return parameters_of(*model_);
}

std::vector<GradientMessage> StepRun::messages() {
  std::vector<Variable> trained;
  std::ranges::copy_if(model_->variables(), std::back_inserter(trained), &Variable::trainable);
  const detail::GradientPieces pieces{strategy_.store(), trained, Here::current()};
  std::vector<GradientMessage> messages;
  for (const GradientBucket& bucket : pieces.buckets(inside(strategy_).reductions().packing(), detail::early_bytes))
    messages.push_back({static_cast<std::int64_t>(bucket.memory.bytes()), bucket.pieces});
  return messages;
}

std::vector<PartTimes> StepRun::block(std::int64_t steps) {
  Laps laps{clock_};
  const FitOptions options{.global_batch = options_.global_batch,
                           .steps = steps + 1,
                           .shards = options_.shards,
                           .threads = options_.shards == strategy_.num_replicas_in_sync() ? 1 : options_.threads,
                           .evaluate_every = steps + 1,
                           .attest_first = 0};
  (void)fit(strategy_, timed_, *optimizer_, {samples_, evaluated_.source()}, options, laps);
  ops::end_kernel_threads();
  return laps.behind_first();
}

}  // namespace lockstep::bench
