// Checkpoints of a training that may be killed at any moment: folders named by their step. The newest complete one is
// always there to continue from.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep {

// A checkpoint is a folder `step-N` that holds
//   weights.safetensors    every variable, under Variable::name
//   optimizer.safetensors  every piece of optimizer state, such as "w@momentum" and "optimizer@steps"
//   manifest.json          {"format":1,"program":"lockstep 0.1.0","step":N,"best":{"step":…,"loss":…},"training":{…},
//                          "kernels":…,"compression":…,"state":{…},"metadata":{…},
//                          "files":{NAME:{"bytes":…,"digests":{TENSOR:XXHASH64,…}},…},"digest":XXHASH64 of the rest}
// in the formats of checkpoint.hpp. Nothing in it depends on the number of ranks. It is written under another name,
// synced, and renamed, so a folder that is called `step-N` is complete. Beside it, the symbolic link `latest` points to
// the newest, and `best` to the one with the lowest loss; they are switched last. On a file system without links there
// are none, but FOLDER/latest and FOLDER/best still name these checkpoints. If a step has a checkpoint already, the new
// one takes its place. Readers ignore unknown keys of a manifest, other files in the folder, and names that are not
// `step-N`.
//
// A training that continues from step 20 has not made a `step-30` that is there. It first renames it to
// `step-30.aside`, with a warning. Otherwise the next start of the training would continue from there.

class CheckpointWriter;
class StrategyValues;
struct CheckpointLoss;
struct ReadCheckpoint;

/// Writes and restores the checkpoints of one training. Unless stated otherwise, every method is COLL and blocking, in
/// cross-replica context or the default one, and the variables must be sealed (else ContextError). Only the chief
/// touches files. A failure there is a CheckpointError on the chief, which names the file, and a PeerError with the
/// same words on the others.
///
/// Checkpoints are written in the background, one at a time: a call that saves one returns when the chief has copied
/// its values, and the steps that follow overlap with a thread of the chief that makes no MPI call. What fails there is
/// thrown by the chief's next call, and by what the other ranks do next together.
///
/// Only one process at a time writes to a folder. A manager reserves the folder for its process, from its first
/// collective call if `every` is set, or else from its first `save`, until it is destroyed. Managers of one process
/// share a folder. If another process has reserved it, the chief throws a ConfigError that names that process. A
/// process that ends in any way leaves the folder free. A process that lost the folder while it was stopped (possible
/// on file systems without locks) also throws a ConfigError and writes nothing.
class LOCKSTEP_API CheckpointManager {
 public:
  /// Describes a training run: {"seed", "1"}, {"model", "mlp 784-512-512-10 f32"}. The first fact that differs is the
  /// one that a message names.
  using Facts = std::vector<std::pair<std::string, std::string>>;

  /// What a program keeps besides its variables.
  using State = std::map<std::string, std::string>;

  /// A training run that continues from a checkpoint.
  struct Resumed {
    std::int64_t step = 0;             ///< steps made
    State state;                       ///< what the program gave when the checkpoint was written
    std::filesystem::path checkpoint;  ///< its folder
  };

  struct Options {
    std::filesystem::path folder = {};  ///< of all checkpoints; created before the first write if it does not exist
    std::optional<std::int64_t> every = {};  ///< steps between checkpoints; if empty, `after_step` writes none
    /// How many of the newest to keep, besides the best; older ones are removed. Those that are damaged, or of another
    /// training, do not count: to know them, each checkpoint of an earlier start is read once, in the background.
    std::int64_t keep = 3;
    bool optional = false;  ///< a checkpoint that cannot be written is a warning, and the training continues
    /// Facts that must be equal for a training to continue from these checkpoints.
    Facts training = {};
    /// Gets the facts of a checkpoint's training. Returns how that training differs from this one, as text that follows
    /// "checkpoint run1/step-400: "; empty if this one may continue from it. If not set, the text names the first fact
    /// of `training` that differs.
    std::function<std::string(const Facts&)> difference = {};
    /// What computes: library, instruction set. A training that continues with others logs a warning that low-order
    /// bits may differ.
    std::string kernels = {};
    /// What else results depend on if gradients are compressed (ReductionOptions::gradient_compression): the type, and
    /// which shards share a node. A training that continues with another text logs a warning that results may differ.
    /// If empty, checkpoints say nothing about it.
    std::string compression = {};
    /// As for `save_weights`: in the file of weights, and in the manifest.
    std::map<std::string, std::string> metadata = {};
    /// Restores weights alone, for a program that does not continue the training. A checkpoint must then agree in the
    /// facts that `training` names; its other facts and `kernels` may differ.
    bool weights_only = false;
    /// LOCAL, on the chief. Throws an Error, whose text goes into a message, if the program cannot continue from what
    /// would be restored. That checkpoint counts as damaged.
    std::function<void(const Resumed&)> check = {};
  };

  /// LOCAL. `strategy` must outlive the manager. InvalidArgument for an empty folder, for `every` or `keep` below 1,
  /// and for metadata that are not UTF-8 or called "writer".
  CheckpointManager(Strategy& strategy, Options options);

  /// LOCAL. Waits for the checkpoint under way; if it fails, logs a warning. `finish` throws instead.
  ~CheckpointManager();

  /// Sets aside the checkpoints in `folder` that are newer than the restored one, or all if that is elsewhere. Call it
  /// between a restore and the first step, once nothing can refuse the training any more. If you do not, the first
  /// `after_step` or `save` does so; if nothing was restored, with those that are newer than its step. Without any of
  /// these calls, a manager changes nothing in the folder.
  void begin(Here here = Here::current());

  /// Call it after each step, with the number of steps made: saves a checkpoint after every `every` of them. `state` is
  /// called on the chief, if one is saved, for what the program wants back. Communicates only if one is saved.
  template <std::invocable MakeState>
  void after_step(std::int64_t step, MakeState&& state, Here here = Here::current()) {
    if (is_due(step))
      save(step, is_chief() ? state() : State{}, {}, here);
    else
      pass(step);
  }
  void after_step(std::int64_t step, Here here = Here::current()) {
    after_step(
        step, [] { return State{}; }, here);
  }

  /// Saves a checkpoint, named by `step`, and removes the oldest ones beyond `keep`. Waits first for an earlier one
  /// that is still being written. On the chief, this takes host memory for one copy of the values, which later calls
  /// use again. With a `loss`, the same on all ranks, the checkpoint is the best if no other had a loss as low.
  /// InvalidArgument for a negative step, and for a sync-on-read variable that cannot be read.
  void save(std::int64_t step, const State& state = {}, std::optional<double> loss = {}, Here here = Here::current());

  /// Returns when every checkpoint saved so far would survive a crash of the machine. Call it at the end of the
  /// training.
  void finish(Here here = Here::current());

  /// On the chief, throws if a checkpoint could not be written, as `after_step` does when none is due. Does not
  /// communicate otherwise.
  void report_failure();

  /// LOCAL. Whether a checkpoint with this loss would be the best.
  bool is_best(double loss) const;

  /// Restores the newest checkpoint that is complete, and logs which ones it skips, and why: one that is cut
  /// short, altered, of a newer version of lockstep, refused by `options.check`, or without the state of an optimizer
  /// that is prepared. Nothing if there is no checkpoint.
  /// CheckpointError if there are some and none is complete, or if the newest complete one is of another training.
  /// Unless Options::weights_only is set, messages count steps from the checkpoint's: the next outermost run is
  /// the step after it, if the program does not name it otherwise (Strategy::set_step).
  std::optional<Resumed> resume_latest(Here here = Here::current());

  /// Restores the checkpoint in the folder `path`, in `options.folder` or elsewhere, and counts steps from it as
  /// `resume_latest` does. CheckpointError if it is not complete or of another training. If it is removed or replaced
  /// while it is read, this reads the one that `path` then leads to.
  Resumed resume(const std::filesystem::path& path, Here here = Here::current());

  /// Whether `folder` holds any checkpoint, complete or not.
  bool has_checkpoints(Here here = Here::current());

  /// LOCAL. Whether `after_step` writes a checkpoint after this one.
  bool is_due(std::int64_t step) const { return options_.every && step % *options_.every == 0; }

 private:
  struct Origin;

  bool is_chief() const;
  void begin_after(std::int64_t step);
  void pass(std::int64_t step);
  void prepare_writer();
  void call_writer(const std::function<void(CheckpointWriter&)>& call);
  std::optional<Resumed> restore(std::string_view call, const Here& here, const std::filesystem::path& path,
                                 const std::function<std::optional<ReadCheckpoint>(StrategyValues&)>& read);

  Strategy& strategy_;
  Options options_;
  std::unique_ptr<const CheckpointLoss> best_;  ///< null without one
  std::unique_ptr<const Origin> resumed_;       ///< null unless everything was restored, and on all ranks but the chief
  std::unique_ptr<CheckpointWriter> writer_;    ///< null on all ranks but the chief
};

}  // namespace lockstep
