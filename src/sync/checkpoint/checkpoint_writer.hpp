// Writes checkpoints while the training goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/start_thread.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/exclusive_use.hpp"
#include "sync/checkpoint/manifest.hpp"

namespace lockstep {

/// A copy of a checkpoint's values in host memory.
class Snapshot {
 public:
  /// Blocks until all work on the device of `stream` is done. Uses the memory of the copy before, where a value still
  /// has its type and shape, so the first copy alone allocates.
  void take(std::vector<TensorFile> files, Stream& stream);

  /// The copies, under the same names. Valid until the next `take`.
  const std::vector<TensorFile>& files() const { return files_; }

 private:
  std::vector<Tensor> copies_;
  std::vector<TensorFile> files_;
};

/// The checkpoints of one folder, written one at a time on a thread that makes no MPI call. For the one rank that
/// touches files. An old checkpoint that cannot be removed is a warning, once.
class CheckpointWriter {
 public:
  /// Keeps the newest `keep` checkpoints and the best one.
  CheckpointWriter(std::filesystem::path folder, std::int64_t keep);

  /// Waits for the checkpoint under way. Logs a warning if it fails.
  ~CheckpointWriter();

  /// Uses the folder alone from here on, if it does not already: see lock_folder. ConfigError if another process uses
  /// it. Logs a warning if the folder cannot be locked, as on a disk that is full. Does nothing if it is a file.
  void hold();

  /// What a training goes on from.
  struct Origin {
    std::int64_t step;                 ///< of a checkpoint in the folder; none_stays if it is elsewhere
    std::optional<std::int64_t> best;  ///< of the checkpoints until then
  };

  /// Holds the folder, and makes it that of the training that goes on from `origin`: sets newer checkpoints aside, with
  /// a warning. Without an origin, those after `step`, which the training has reached by itself, if nothing else in
  /// this process uses the folder. Does nothing when it has been called. CheckpointError if that fails.
  void begin(const std::optional<Origin>& origin, std::int64_t step);
  bool has_begun() const { return has_begun_; }
  /// The training is restored: `begin` has its effect again.
  void begin_anew() { has_begun_ = false; }

  /// After `begin`: checkpoints of these steps, of other trainings, do not count among those that are kept.
  void set_foreign(std::set<std::int64_t> steps) { foreign_ = std::move(steps); }

  /// Holds the folder. Blocks while another checkpoint is being written and while the values of `files` are copied;
  /// then writes them in the background. `manifest` says everything but the files. Throws what `wait` throws.
  void write(Manifest manifest, std::vector<TensorFile> files, Stream& stream);

  /// Blocks until no checkpoint is being written. CheckpointError if one since the last call could not be, ConfigError
  /// if that was because another process uses the folder by now.
  void wait();

  /// As `wait`, if that would not block. Otherwise only throws ConfigError if another process has taken the folder.
  void poll();

 private:
  bool is_blocked() const;
  void remove_old(std::int64_t written);
  bool counts(const std::filesystem::path& checkpoint);

  std::filesystem::path folder_;
  std::int64_t keep_;
  bool may_hold_ = true;  ///< until it turned out that the folder cannot be locked
  std::shared_ptr<ExclusiveUse> use_;
  bool is_alone_ = false;  ///< nothing else in this process used the folder before
  bool has_finished_ = false, has_begun_ = false;
  std::set<std::int64_t> foreign_;
  std::map<std::int64_t, bool> whole_;  ///< of the checkpoints that were written or read, whether they are
  bool told_what_stays_ = false;        ///< of an old checkpoint that cannot be removed
  Snapshot snapshot_;
  StartedTask<void> writing_;
};

}  // namespace lockstep
