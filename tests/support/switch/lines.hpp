// When frames leave a switch: each port has a line of a rate, and in front of it a queue that drops what does not fit.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

namespace lockstep::test {

/// Of the monotonic clock.
using Time = std::chrono::nanoseconds;

/// What a frame takes on Ethernet beside its bytes: preamble, checksum, and the gap to the next.
constexpr std::int64_t frame_overhead_bytes = 24;

/// The line from a switch to one port. Frames take turns on it in the order in which they come to it.
class Line {
 public:
  /// `bits_per_second` is 0 for a line without a limit. `queue_bytes` are how much may wait.
  Line(std::int64_t bits_per_second, std::int64_t queue_bytes)
      : bits_per_second_{bits_per_second}, queue_bytes_{queue_bytes} {}

  /// When a frame is through that comes to the line at `arrival`, no earlier than the one before; nothing if the queue
  /// has no room for it.
  std::optional<Time> through(Time arrival, std::int64_t bytes_on_wire) {
    if (bits_per_second_ == 0) return arrival;
    const Time begin = std::max(arrival, free_);
    if (begin - arrival > time_of(queue_bytes_)) return std::nullopt;
    return free_ = begin + time_of(bytes_on_wire);
  }

 private:
  Time time_of(std::int64_t bytes) const {
    return Time{static_cast<std::int64_t>(8e9 * static_cast<double>(bytes) / static_cast<double>(bits_per_second_))};
  }

  std::int64_t bits_per_second_, queue_bytes_;
  Time free_{0};  ///< when the last frame is through
};

/// Which of the frames that come from one port are lost: the same ones for the same seed.
class Loss {
 public:
  Loss(double probability, std::uint64_t seed) : lost_{probability}, random_{seed} {}

  bool next() { return lost_(random_); }

 private:
  std::bernoulli_distribution lost_;
  std::mt19937_64 random_;
};

}  // namespace lockstep::test
