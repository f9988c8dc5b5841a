// The signals that a user or scheduler sends, and the ends of children, as a descriptor.
#pragma once

#include <chrono>
#include <optional>

#include "base/descriptor.hpp"

namespace lockstep::run {

/// Holds the signals back from here on, but those that are ignored.
class Signals {
 public:
  Signals();

  /// Readable when one has come.
  int descriptor() const { return descriptor_.get(); }

  /// The next one that has come.
  std::optional<int> take() const;

  /// Whether a user, or a scheduler, wishes to stop within this time. The ends of children do not count, nor does
  /// SIGUSR2, which asks a job where its ranks are.
  std::optional<int> take_within(std::chrono::milliseconds time) const;

 private:
  Descriptor descriptor_;
};

}  // namespace lockstep::run
