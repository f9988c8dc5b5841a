// Training steps with a given number of shards, timed part by part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "apps/lockstep-bench/overlap.hpp"
#include "apps/lockstep-bench/step_clock.hpp"
#include "apps/lockstep-bench/step_task.hpp"
#include "apps/lockstep-bench/timed_model.hpp"

namespace lockstep::bench {

/// `reductions` under which collectives count as communication. `meet` is called before each and counts as waiting: it
/// returns when every rank has come. The clock must outlive the strategy.
ReductionOptions timed_reductions(StepClock& clock, std::function<void()> meet, ReductionOptions reductions = {});

/// A model and its optimizer, trained by `fit` as in lockstep-train. It does not tell the clock of agreements; the
/// program must do that.
class StepRun {
 public:
  struct Options {
    StepModel model = StepModel::mlp;
    std::int64_t global_batch = 256;
    int shards = 8;   ///< a multiple of the number of ranks
    int threads = 1;  ///< of each rank; with one shard for each they share its products
    std::int64_t hidden = default_hidden;
    std::filesystem::path checkpoints = {};  ///< the folder of `checkpoint`
    nn::Model::Precision precision = nn::Model::Precision::full;
    ops::Kernels::Choice kernels = ops::Kernels::Choice::automatic;
  };

  /// COLL. `strategy` must use timed_reductions and be on the CPU. Clock and samples must outlive the run.
  StepRun(Strategy strategy, StepClock& clock, const RandomSamples& samples, const Options& options);

  std::string_view model() const { return model_->name(); }
  /// The number of elements of all its variables.
  std::int64_t parameters() const;
  /// LOCAL, after a block. What this rank keeps of the optimizer's state.
  std::int64_t state_bytes() const { return state_bytes_of(*model_); }
  /// After a block: those in which gradients would travel between nodes.
  std::vector<GradientMessage> messages();
  /// After a block: TimedModel::ready_moments.
  std::vector<double> ready_moments() const { return timed_.ready_moments(); }
  std::int64_t global_batch() const { return options_.global_batch; }
  int shards() const { return options_.shards; }
  nn::Model::Precision precision() const { return options_.precision; }
  /// Their name.
  std::string_view kernels() const { return kernels_->name(); }

  /// COLL. Trains for `steps` steps, after a first one that allocates memory and starts threads, and does not count.
  /// Returns the parts of each. Ends the threads, so that another run's block has the cores.
  std::vector<PartTimes> block(std::int64_t steps);

  /// COLL, after a block. Saves a checkpoint, which is then being written.
  void save_checkpoint() { checkpoints_->save(0); }

  /// COLL. Returns when it has been written.
  void finish_checkpoint() { checkpoints_->finish(); }

 private:
  Strategy strategy_;
  StepClock& clock_;
  const SampleSource& samples_;
  Options options_;
  RandomSamples evaluated_;  ///< a single sample, because `fit` evaluates at its end and nobody needs the result
  std::shared_ptr<const ops::Kernels> kernels_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  TimedModel timed_;
  std::optional<CheckpointManager> checkpoints_;
};

}  // namespace lockstep::bench
