// The signals that a user or scheduler sends, and the ends of children, as a descriptor.
#pragma once

#include <chrono>
#include <optional>

#include <sys/types.h>

#include "core/base/descriptor.hpp"

namespace lockstep::run {

/// Holds the signals back from here on, but those that are ignored.
class Signals {
 public:
  /// With a process that passes them on, those that come from elsewhere count for nothing: a terminal, or whoever sends
  /// a signal to all processes of a name, reaches that one as well.
  explicit Signals(std::optional<pid_t> passed_on_by = std::nullopt);

  /// Readable when one has come.
  int descriptor() const { return descriptor_.get(); }

  /// The next one that has come.
  std::optional<int> take() const;

  /// Whether a user, or a scheduler, wishes to stop within this time. The ends of children do not count, nor does
  /// SIGUSR2, which asks a job where its ranks are.
  std::optional<int> take_within(std::chrono::milliseconds time) const;

 private:
  std::optional<pid_t> passed_on_by_;
  Descriptor descriptor_;
};

/// Sends a signal to a process whose Signals take those that this process passes on.
void pass_on(int signal, pid_t process);

}  // namespace lockstep::run
