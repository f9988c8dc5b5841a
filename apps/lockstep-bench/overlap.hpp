// How much of the sums between nodes a backward pass hides: docs/prediction.md, as functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::bench {

/// A moment in which a rank attends to its sums: those of a message begin, and those under way move on. This happens
/// each time a gradient is ready, and not in between.
struct Look {
  double moment;       ///< from 0, the beginning of the backward pass, to 1, its end
  std::int64_t bytes;  ///< of messages that begin

  bool operator==(const Look&) const = default;
};

/// Neighbouring gradients that travel together, once these and all before them are ready.
struct GradientMessage {
  std::int64_t bytes;
  std::size_t gradients;  ///< up to and including its last one

  bool operator==(const GradientMessage&) const = default;
};

/// The looks of a pass, by time. `ready` has the moment of each gradient, in the order of memory. The last look is at
/// the end of the pass.
std::vector<Look> looks_of(std::span<const double> ready, std::span<const GradientMessage> messages);

/// How long sums go on after a backward pass of length `pass`, if they go one way, to whoever adds them up, at
/// `one_way` for each byte, and return at the same rate: both times in the unit of the result.
double exposed_time(std::span<const Look> looks, double pass, double one_way);

}  // namespace lockstep::bench
