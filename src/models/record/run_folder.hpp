// The folder of a run: what is where in it, and who may write to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <lockstep/models/record/run_record.hpp>

#include "sync/checkpoint/exclusive_use.hpp"

namespace lockstep {

/// The names of what lies in the folder of a run.
struct RunLayout {
  std::filesystem::path folder;

  std::filesystem::path description() const { return folder / "run.json"; }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path timeline() const { return folder / "timeline.jsonl"; }
  std::filesystem::path trace() const { return folder / "trace"; }
  std::filesystem::path where() const { return folder / "where.txt"; }
  std::filesystem::path stacks() const { return folder / "stacks"; }
  std::filesystem::path ledger() const { return folder / "ledger.jsonl"; }
  std::filesystem::path ledger_of_shards() const { return folder / "ledger.shards.jsonl"; }
  // Of lockstep-train.
  std::filesystem::path checkpoints() const { return folder / "checkpoints"; }
  std::filesystem::path events() const { return folder / "events"; }
  std::filesystem::path weights() const { return folder / "weights.safetensors"; }
};

/// Whether a process begins a run, or may go on with one.
enum class RunStart : std::uint8_t { anew, may_resume };

/// LOCAL. From here on, this process has the folder for its job alone; it is made if it does not exist. ConfigError if
/// it cannot be written, if another process uses it, if it holds a run that this one does not go on with, or a file
/// that the run would replace and none has written; CheckpointError if a file cannot be read. The message begins with
/// the name of the folder or of the file. Blocks as ExclusiveUse does.
std::shared_ptr<ExclusiveUse> lock_run_folder(const RunRecord::Options& options, RunStart start);

}  // namespace lockstep
