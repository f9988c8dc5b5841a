// The trace of a run: the last spans of every rank, in the folder of the run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/foreign_json.hpp"
#include "core/device/stream_spans.hpp"
#include "core/trace/ring.hpp"
#include "core/trace/ring_file.hpp"

namespace lockstep {

/// Keeps a trace of this rank, and of its GPU, from its construction to its destruction. The strategy must outlive it.
class RunTrace {
 public:
  /// COLL, blocking. Each rank begins its file in `folder`, which replica 0 has made (clear_trace). `ranks` are those
  /// of run.json. On several hosts, finds out how their clocks differ. CheckpointError on a rank that cannot make its
  /// file, PeerError on the others.
  RunTrace(Strategy& strategy, std::filesystem::path folder, const OrderedJson& ranks, const Here& here);

  /// LOCAL. Writes what this rank has done so far as a picture (write_picture). Replica 0 also writes the last steps of
  /// all ranks whose files it sees, and the others may wait for it. If that fails, logs a warning: the rings are there.
  void write_pictures() const;

 private:
  Strategy& strategy_;
  std::filesystem::path folder_;
  int rank_;
  std::unique_ptr<trace::Ring> ring_;
  std::optional<StreamTrace> gpu_;
};

/// ConfigError, which begins with `name` and the file, if `folder` holds something else under a name that a trace has,
/// so that clear_trace would remove it. FileError if a file cannot be read.
void require_own_trace(const std::filesystem::path& folder, const std::string& name);

/// Makes the folder of a trace, moves the rings of the last start to FOLDER/before, replacing those that are there, and
/// removes that start's pictures. ConfigError if that fails; CheckpointError if the disk is full.
void clear_trace(const std::filesystem::path& folder);

/// Writes FOLDER/rank-R.json. CheckpointError if that fails; ConfigError if the file is of something else.
void write_picture(const std::filesystem::path& folder, const trace::ReadRing& ring);

/// Writes FOLDER/all-ranks.trace: the last 20 steps of all ranks, as far as each has them whole. `rings` hold nothing
/// but last steps (keep_last_steps). The same error.
void write_merged_picture(const std::filesystem::path& folder, std::span<const trace::ReadRing> rings);

/// The rings in a folder.
struct Rings {
  std::vector<trace::ReadRing> read;    ///< by rank
  std::vector<std::string> unreadable;  ///< why a file could not be read, such as that of a rank killed at its start
};

/// Calls `see` for each ring that was read, which may change it. ConfigError if none was.
Rings read_rings(const std::filesystem::path& folder, const std::function<void(trace::ReadRing&)>& see);

/// Leaves only the steps that a picture of all ranks may show.
void keep_last_steps(trace::ReadRing& ring);

}  // namespace lockstep
