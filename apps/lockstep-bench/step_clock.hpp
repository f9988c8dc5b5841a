// Where the time of a training step goes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>

#include "core/control/part_clock.hpp"

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

/// For one thread. Starts in `data`.
class StepClock : public lockstep::PartClock<Part, part_count> {
 public:
  /// Tests pass another clock as `now`.
  explicit StepClock(std::function<Time()> now = std::chrono::steady_clock::now);

  /// Ends a step. Returns the times since the last lap, or since the start. The next step starts in `data`.
  PartTimes lap();
};

}  // namespace lockstep::bench
