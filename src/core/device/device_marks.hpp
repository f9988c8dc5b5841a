// Marks in the work of a GPU, which tell when it came to them. liblockstep-cuda.so makes them of events.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <lockstep/core/device/stream.hpp>

namespace lockstep {

/// Numbered marks, each put again and again. A number is new or among those used before, so there are no more marks
/// than are under way at a time. Nothing here waits, throws, or stands in the way of a job: what a call finds wrong
/// with the GPU, the job's next call finds too.
class DeviceMarks {
 public:
  enum class Put : std::uint8_t {
    done,
    refused,  ///< this time: the stream records a graph
    failed,   ///< and so will the next
  };
  enum class Reached : std::uint8_t { both, not_yet, failed };

  struct Distance {
    Reached reached;
    std::chrono::nanoseconds time;  ///< if it came to both
  };

  virtual ~DeviceMarks() = default;

  /// Puts a mark after everything that was enqueued on `stream` so far.
  virtual Put put(std::size_t number, Stream& stream) noexcept = 0;

  /// How long the GPU took from one mark to the other, which may be one of another stream.
  virtual Distance distance(std::size_t from, std::size_t to) noexcept = 0;
};

}  // namespace lockstep
