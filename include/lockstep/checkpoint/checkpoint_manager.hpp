// Checkpoints of a training that may be killed at any moment: folders named by their step, of which the newest complete
// one is always there to go on from.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/checkpoint/program_state.hpp>
#include <lockstep/control/tag.hpp>
#include <lockstep/strategy/strategy.hpp>

namespace lockstep {

// A checkpoint is a folder `step-N` that holds
//   weights.safetensors    every variable, under Variable::name
//   optimizer.safetensors  every piece of optimizer state, under the name that VariableStore::optimizer_state gives it
//   manifest.json          {"format":1,"program":"lockstep 0.1.0","step":N,"training":{…},"kernels":…,"state":{…},
//                          "files":{NAME:{"bytes":…,"digests":{TENSOR:XXHASH64,…}},…},"digest":XXHASH64 of the rest}
// in the formats of checkpoint.hpp. Nothing in it depends on the number of ranks. It is written under another name,
// synced, and renamed, so a folder that is called `step-N` is complete. Beside it, the symbolic link `latest` points to
// the newest; it is switched last. A checkpoint of a step that has one already is exchanged with it.

class StrategyValues;
struct ReadCheckpoint;

/// What of a checkpoint is restored: weights alone for a program that does not go on training.
enum class RestoredParts : std::uint8_t { all, weights };

struct CheckpointOptions {
  std::filesystem::path folder;       ///< of all checkpoints; made when the first is written
  std::optional<std::int64_t> every;  ///< steps between checkpoints; if empty, `after_step` writes none
  std::int64_t keep = 3;              ///< how many of the newest stay; older ones are removed
  bool optional = false;              ///< a checkpoint that cannot be written is a warning, and the training goes on
  /// What a training that goes on from these checkpoints must agree in.
  TrainingFacts training;
  /// What computes: library, instruction set. A training that goes on with others is warned that low-order bits may
  /// differ.
  std::string kernels;
  /// With weights alone, the training of a checkpoint must agree in what `training` names, and may differ in the rest
  /// and in `kernels`.
  RestoredParts restores = RestoredParts::all;
};

/// A training that goes on.
struct ResumedTraining {
  std::int64_t step = 0;             ///< steps made
  ProgramState state;                ///< what the program gave when the checkpoint was written
  std::filesystem::path checkpoint;  ///< its folder
};

/// Writes and restores the checkpoints of one training. Unless stated otherwise, every method is COLL and blocking, in
/// cross-replica context or the default one, and the variables must be sealed (else ContextError). Only the chief
/// touches files; the others wait for it. A failure on the chief is a CheckpointError there, which names the file, and
/// a PeerError with the same words on the others.
class CheckpointManager {
 public:
  /// LOCAL. `strategy` must outlive the manager. InvalidArgument for an empty folder, and for `every` or `keep` below
  /// 1.
  CheckpointManager(Strategy& strategy, CheckpointOptions options);

  /// Call it after each step, with the number of steps made: writes a checkpoint after every `every` of them. `state`
  /// is called on the chief, if one is written, for what the program wants back.
  template <std::invocable State>
  void after_step(std::int64_t step, State&& state, Here here = Here::current()) {
    if (is_due(step)) save(step, is_chief() ? state() : ProgramState{}, here);
  }
  void after_step(std::int64_t step, Here here = Here::current()) {
    if (is_due(step)) save(step, {}, here);
  }

  /// Writes a checkpoint, named by `step`, and removes the oldest ones beyond `keep`. InvalidArgument for a negative
  /// step, and for a sync-on-read variable that cannot be read.
  void save(std::int64_t step, const ProgramState& state = {}, Here here = Here::current());

  /// Restores the newest checkpoint that is complete, and logs which ones it passes over, and why: one that is cut
  /// short, altered, or of a newer version of lockstep. Nothing if there is no checkpoint. CheckpointError if there are
  /// some and none is complete, or if the newest complete one is of another training.
  std::optional<ResumedTraining> resume_latest(Here here = Here::current());

  /// Restores the checkpoint in the folder `path`, in `options.folder` or elsewhere. CheckpointError if it is not
  /// complete or of another training.
  ResumedTraining resume(const std::filesystem::path& path, Here here = Here::current());

  /// Whether `folder` holds any checkpoint, complete or not.
  bool has_checkpoints(Here here = Here::current());

  /// LOCAL. Whether `after_step` writes a checkpoint after this one.
  bool is_due(std::int64_t step) const { return options_.every && step % *options_.every == 0; }

 private:
  bool is_chief() const;
  std::optional<ResumedTraining> restore(const Here& here, const std::filesystem::path& path,
                                         const std::function<std::optional<ReadCheckpoint>(StrategyValues&)>& read);

  Strategy& strategy_;
  CheckpointOptions options_;
};

}  // namespace lockstep
