// Saves checkpoints while `fit` runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/fit/observer.hpp>
#include <lockstep/models/record/run_record.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>

#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

/// Tells the record of the run everything, and saves a checkpoint when one is due, after the last step that is made,
/// and, if the best one is to be kept, after an evaluation that is the best so far.
class CheckpointObserver final : public Observer {
 public:
  struct Options {
    std::filesystem::path folder = {};
    std::int64_t steps = 1;  ///< of the whole training
    bool keep_best = false;
  };

  /// `record` and `checkpoints` must outlive it.
  CheckpointObserver(RunRecord& record, CheckpointManager& checkpoints, Options options);

  bool wants_gradient_norm() const override { return record_.wants_gradient_norm(); }
  void on_step(const Step& report) override { record_.on_step(report); }
  void on_digests(const Digests& digests) override { record_.on_digests(digests); }
  void on_evaluating(const Evaluation::Progress& progress) override { record_.on_evaluating(progress); }
  void on_evaluation(const Evaluation& report) override;
  void on_parts(const Observer::Parts& report) override { record_.on_parts(report); }
  void on_drift(std::int64_t step, const DriftError& found) override { record_.on_drift(step, found); }
  void on_audit(const AuditError& found) override { record_.on_audit(found); }
  void on_step_end(const State& state) override;
  void on_stop(const State& state) override;

 private:
  void save(const Observer::State& state, std::optional<double> loss);

  RunRecord& record_;
  CheckpointManager& checkpoints_;
  Options options_;
  std::optional<double> loss_;  ///< of an evaluation after this step
  std::int64_t saved_ = 0;      ///< the last step that was
};

/// What a checkpoint keeps of the progress of a training.
ProgramState program_state_of(const Observer::State& state);

/// Where a training that goes on continues. Error if it has no state, if that is not of its step, and if no such
/// training could have reached it.
Observer::State fit_state_of(const CheckpointManager::Resumed& resumed, FitOptions::OnDivergence on_divergence);

}  // namespace lockstep
