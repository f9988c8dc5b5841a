// Where the time of a training step goes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>

namespace lockstep::bench {

/// What a rank does in a step, in the order of the report.
enum class Part : std::uint8_t {
  data,           ///< from the end of the previous step to the model: the order of the samples, the batches
  forward,        ///< up to and including the loss
  backward,       ///< including the sum over shards
  waiting,        ///< before a collective or an agreement, for ranks that have not come to it yet
  communication,  ///< collectives, not overlapped with computation
  agreement,
  optimizer,  ///< from gradients to weights and from statistics to averages, without the three above
  other,      ///< the end of the step
};
inline constexpr std::size_t part_count = 8;

/// Milliseconds.
struct PartTimes {
  std::array<double, part_count> of_part{};

  double of(Part part) const { return of_part[static_cast<std::size_t>(part)]; }
  double& of(Part part) { return of_part[static_cast<std::size_t>(part)]; }
  double whole() const { return std::accumulate(of_part.begin(), of_part.end(), 0.0); }
  bool operator==(const PartTimes&) const = default;
};

/// Assigns every moment to exactly one part, so that the parts add up to the whole. For one thread.
class PartClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Starts in `data`. Tests pass another clock as `now`.
  explicit PartClock(std::function<Time()> now = std::chrono::steady_clock::now);

  Part current() const { return current_; }

  /// Time counts for `part` from now on.
  void enter(Part part);

  /// Ends a step. Returns the times since the last lap, or since the start. The next step starts in `data`.
  PartTimes lap();

  /// Time counts for `part` during its lifetime, and then again for the part it interrupted.
  class During {
   public:
    During(PartClock& clock, Part part) : clock_{clock}, interrupted_{clock.current()} { clock_.enter(part); }
    During(const During&) = delete;
    ~During() { clock_.enter(interrupted_); }

   private:
    PartClock& clock_;
    Part interrupted_;
  };

 private:
  std::function<Time()> now_;
  Time since_;
  Part current_ = Part::data;
  PartTimes times_{};
};

}  // namespace lockstep::bench
