// Metrics as an event file of TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include <lockstep/models/fit/observer.hpp>

#include "apps/tensorboard/event_records.hpp"
#include "models/record/kept_file.hpp"

namespace lockstep {

class ExclusiveUse;

/// Writes events.out.tfevents.TIME.HOST to a folder: loss, learning rate, gradient norm and samples a second of each
/// step as train/…, each evaluation as evaluation/…, and from the parts of the ranks parts/PART, in seconds a step, as
/// the mean of the ranks, and late/RANK TASK, as Observer::Parts::Replica::late. Every record is written as a whole by
/// one call, and reaches the file before the method returns: a run that is killed leaves a file that can be read.
/// CheckpointError, naming the file, if it cannot be written. For the chief alone.
///
/// A run that is resumed begins a file of its own. Its first event after the version starts a session at the run's
/// first step: TensorBoard then drops what earlier files of the folder hold of that step and later ones, so that no
/// step is there twice. A new run, which starts at step 1, so takes the place of the runs before it.
class EventFile final : public Observer {
 public:
  /// For a run that goes on after `steps` steps. Makes the folder. `use` holds the folder around it; once that is lost,
  /// nothing more is written. ConfigError, naming the folder, if it cannot be written, or if this build has no
  /// event files.
  explicit EventFile(std::filesystem::path folder, std::shared_ptr<ExclusiveUse> use = nullptr, std::int64_t steps = 0);

  bool wants_gradient_norm() const override { return true; }
  void on_step(const Step& report) override;
  void on_evaluation(const Evaluation& report) override;
  void on_parts(const Observer::Parts& report) override;

  const std::filesystem::path& path() const { return path_; }

  /// CheckpointError if the file is no longer where it was. A warning has said so when it was written to.
  void require_in_place() const { file_->require_in_place(); }

 private:
  void write(TensorBoardEvent event);

  std::filesystem::path folder_, path_;
  const EventRecords* records_;
  std::shared_ptr<ExclusiveUse> use_;
  std::optional<KeptFile> file_;  ///< always there
  bool is_loss_told_ = false;
};

}  // namespace lockstep
