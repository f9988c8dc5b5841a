// The file of a ring, read: of a run that has ended, in whatever way, or that goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/parts.hpp"
#include "core/trace/ring_layout.hpp"

namespace lockstep::trace {

struct ReadSpan {
  std::int64_t begin;                  ///< nanoseconds of the clock of rank 0's host
  std::optional<std::int64_t> length;  ///< nanoseconds; empty if it had not ended
  std::uint32_t step;
  Track track;
  Kind kind;
  std::string name;  ///< printable
};

struct ReadRing {
  int rank;
  int ranks;
  std::int64_t process;
  std::string task;
  std::string host;
  std::string device;
  std::int64_t clock_error;          ///< of the other times, in nanoseconds
  std::int64_t device_clock_error;   ///< of the GPU's streams, against the same host; 0 without a GPU
  std::vector<std::string> threads;  ///< by track
  std::uint64_t lost;                ///< spans that were written over
  std::vector<ReadSpan> spans;       ///< as they began
};

/// ConfigError, naming the file, if it is none of a ring.
LOCKSTEP_PARTS_API ReadRing read_ring(const std::filesystem::path& file);

}  // namespace lockstep::trace
