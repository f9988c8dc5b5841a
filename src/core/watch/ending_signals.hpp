// The signals that end a process, by name.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <map>
#include <string>

#include "core/watch/kept_signals.hpp"

namespace lockstep {

/// "SIGSEGV"; "SIGRTMIN+1" and "signal 99" for those without a name of their own.
std::string name_of_signal(int signal);

/// Notes the signal that ends this process where other processes see it, and then lets it do so as it would have. That
/// holds for signals that end a process by default, unless the program handles them, or something here takes them:
/// SIGTERM, SIGINT, SIGUSR2, SIGXCPU. SIGKILL cannot be noted.
class EndingSignals {
 public:
  /// Finds those signals. To be made before MPI starts, whose handlers are to be called after this one's.
  explicit EndingSignals(KeptSignals::Keep keep);
  EndingSignals(const EndingSignals&) = delete;
  ~EndingSignals();

  /// From here on, as long as this object lives. One object of a process at a time. `note` must outlive it.
  void note_in(std::atomic<std::uint64_t>& note);

 private:
  std::map<int, struct sigaction> before_;  ///< what this object replaces
};

}  // namespace lockstep
