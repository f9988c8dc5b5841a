// A run of lockstep-train, from its options to its result.
//
//   Trainer trainer{runtime.strategy(), "cpu", {.data = "fashion-mnist", .epochs = 2}};
//   const TrainingResult result = std::move(trainer).train();
//   if (runtime.is_chief()) std::puts(to_json(result).c_str());
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/order/range.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/models/record/run_record.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "apps/lockstep-train/options/training_options.hpp"
#include "apps/lockstep-train/reports/results.hpp"
#include "apps/lockstep-train/saved/saved_model.hpp"
#include "apps/lockstep-train/tasks/task.hpp"
#include "apps/lockstep-train/verification.hpp"
#include "core/order/shard_request.hpp"
#include "core/order/shares.hpp"
#include "sync/checkpoint/exclusive_use.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

/// Owns what a run is made of, and makes one run, which uses it up: `train`, `evaluate` or `predict`. Each is COLL and
/// blocking.
///
/// Weights that a Trainer saved describe their model and its data. Empty options of the model are then taken from the
/// weights that are resumed or, in a new training, from the initial ones, and the columns of a table are found by their
/// names.
///
/// ConfigError on a rank with a wrong option or wrong data, PeerError on the others; ConfigError if an option
/// contradicts the weights; MismatchError if the ranks loaded different data or their kernels differ
/// (Kernels::fingerprint); CheckpointError for weights and checkpoints that cannot be read, do not match, or cannot be
/// written.
class Trainer {
 public:
  /// LOCAL. `strategy` must outlive it. `device` goes into the result.
  Trainer(Strategy& strategy, std::string device, TrainingOptions options);
  Trainer(const Trainer&) = delete;

  /// Trains a model, with progress on the chief's stderr if it is shown. A training that is resumed from a checkpoint
  /// ends in the bytes of one that never stopped, on any number of ranks that `fit` names. So does its file of metrics,
  /// except times. ConfigError if it begins anew and the folder of checkpoints holds some.
  ///
  /// If a rank asks for an early end (Strategy::request_stop), `fit.stopped` is true, the last step is saved like any
  /// that is due, no weights are exported, and there is no sample.
  TrainingResult train() &&;

  /// Restores weights, and evaluates them as a training does. Uses the options of data, model and device alone, besides
  /// `evaluation_samples`, `exported_weights` and `sample`; data, seed and optimizer may differ from those of the
  /// checkpoint. ConfigError if the options name no weights, CheckpointError if there are none.
  EvaluationResult evaluate() &&;

  /// Restores weights, and predicts each sample of TrainingOptions::predict. The predictions are on the chief, in the
  /// order of the samples, and the same on any number of ranks; the other ranks return none. Uses the options of model
  /// and device alone, and for text `sample` and `seed`. Throws as `evaluate` does, and InvalidArgument if a model of
  /// text has weights that are not finite.
  std::vector<Prediction> predict() &&;

  /// Computes steps of a recorded run again, with the options of its command, and compares them with its ledger: those
  /// asked for, from 1, or all. Begins with the newest checkpoint before them, or else with the first step, and writes
  /// nothing. AuditError on all ranks at the first difference. ConfigError if data or kernels here differ from those of
  /// the run, CheckpointError for a checkpoint that is not the one in the ledger.
  VerificationResult verify(const RecordedRun& run, const std::optional<Range>& steps) &&;

  /// The same without the ledger's entries: returns what each of `steps` yields, both ends included, on every rank.
  std::vector<StepDigests> record_again(const RecordedRun& run, Range steps) &&;

 private:
  /// Where the weights of a run without training come from.
  struct Restored {
    std::filesystem::path from;
    std::int64_t steps = 0;  ///< after which they were saved; 0 if that is not known
  };

  bool is_chief() const { return strategy_.rank() == 0; }
  int ranks() const { return strategy_.num_replicas_in_sync(); }

  // What all runs begin with, in this order (trainer.cpp). COLL unless stated otherwise.

  /// Runs `work` on every rank before the first step, so that what fails on one rank fails on all. Messages call it
  /// "the setup".
  void set_up(const std::function<void()>& work, Here here = Here::current());
  /// Takes empty options from the weights that `options_` name, or else the defaults.
  void complete_options(RestoredParts restored);
  /// LOCAL. The shards of a job of so many ranks.
  ShardRequest::Choice choose_shards(int ranks) const;
  /// LOCAL. How the ranks share them.
  Shares shares() const;
  /// In the setup. Makes the kernels and reads the data that `request_` asks for.
  void load();
  /// Makes the model, if all ranks have the same data and kernels.
  void make_model();
  /// Seals the variables and gives them the initial weights. Returns what these say of their model.
  WeightsMetadata take_initial_weights();
  /// All of these, for a run without training. `check` is the end of its setup.
  Restored restore_model(const std::function<void()>& check);
  void export_weights();

  // What a training needs besides (training.cpp).

  /// Keeps other jobs out of the folder of the run and that of checkpoints, before anything is read there.
  /// CheckpointError if this number of ranks cannot go on from the checkpoint that `options_` name.
  void lock_folders();
  FitOptions fit_options() const;
  /// What compresses gradients, and between which shards (compression_text). Empty if nothing does.
  std::string compression() const;
  CheckpointManager::Options checkpoint_options() const;
  /// Goes on from the checkpoint that `options_` name, if there is one.
  void resume();

  // What computing a recorded run again needs (verification.cpp).

  void complete_options_of(const RecordedRun& run);
  /// Everything up to the step before `first`, or up to an earlier one that has a checkpoint.
  void prepare_again(const RecordedRun& run, std::int64_t first);
  void compute_again(Observer& observer, std::int64_t last);
  void require_comparable(const RecordedRun& run) const;
  /// What the record of the run says, and where it writes. `reports` must outlive it.
  RunRecord::Options record_options(Observer& reports) const;

  Strategy& strategy_;
  std::string device_;
  TrainingOptions options_;                   ///< as they were given, then complete
  std::shared_ptr<ExclusiveUse> use_;         ///< of the folder of checkpoints, on the chief
  std::shared_ptr<ExclusiveUse> run_folder_;  ///< the same of the folder of the run
  DataRequest request_;
  int shards_ = 1;
  int threads_ = 1;  ///< that compute whole shards; those of the kernels are theirs alone
  std::shared_ptr<const ops::Kernels> kernels_;
  std::unique_ptr<TrainingTask> task_;
  nn::Model* model_ = nullptr;  ///< the task's
  FitOptions fit_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<CheckpointManager> checkpoints_;
};

}  // namespace lockstep
