// The trace of a run: the last spans of every rank, in the folder of the run.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include <lockstep/base/here.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "base/foreign_json.hpp"
#include "trace/ring.hpp"
#include "trace/ring_file.hpp"

namespace lockstep {

/// Keeps a trace of this rank from its construction to its destruction.
class RunTrace {
 public:
  /// COLL, blocking. Each rank begins its file in `folder`, which replica 0 has made (clear_trace). `ranks` are those
  /// of run.json. On several hosts, finds out how their clocks differ. ConfigError on a rank that cannot make its file,
  /// PeerError on the others.
  RunTrace(Strategy& strategy, std::filesystem::path folder, const OrderedJson& ranks, const Here& here);

  /// LOCAL. Writes what this rank has done so far as a picture (write_picture). Replica 0 also writes the last steps of
  /// all ranks whose files it sees. CheckpointError if that fails.
  void write_pictures() const;

 private:
  std::filesystem::path folder_;
  int rank_;
  std::unique_ptr<trace::Ring> ring_;
};

/// Makes the folder of a trace, and removes what an earlier start has left there. ConfigError if that fails.
void clear_trace(const std::filesystem::path& folder);

/// Writes FOLDER/rank-R.json from FOLDER/rank-R.ring. ConfigError if that is none, CheckpointError if the picture
/// cannot be written.
void write_picture(const std::filesystem::path& folder, int rank);

/// Writes FOLDER/all-ranks.json: the last 20 steps of all ranks, as far as each has them whole. Throws the same, and as
/// read_rings.
void write_merged_picture(const std::filesystem::path& folder);

/// The rings in a folder, by rank. ConfigError if there is none, or one that cannot be read.
std::vector<trace::ReadRing> read_rings(const std::filesystem::path& folder);

}  // namespace lockstep
