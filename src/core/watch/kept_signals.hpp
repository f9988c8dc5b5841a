// Holds SIGTERM and SIGINT back for whoever has something to say before they end the process.
#pragma once

#include <cstdint>

namespace lockstep {

/// mpirun sends SIGTERM to the survivors of a rank's death, and to all ranks if it is interrupted; a process without
/// mpirun gets SIGINT from Ctrl-C. While an object of this class lives, neither signal ends the process: it makes a
/// descriptor readable, and whoever watches that looks around once more and then calls `die`. The first object installs
/// the handlers, on the thread that computes, whose stack they leave alone. The last one restores what was there
/// before, and passes on a signal that nobody acted on. Any thread may have one. A program that handles or ignores
/// SIGINT keeps it. If the process has no descriptor left, the object keeps no signal.
class KeptSignals {
 public:
  enum class Keep : std::uint8_t {
    both,
    none,  ///< the signals are somebody else's: the object does nothing
  };

  explicit KeptSignals(Keep keep = Keep::both);
  KeptSignals(const KeptSignals&) = delete;
  ~KeptSignals();

  /// Readable once a signal has come. -1 if none is kept.
  int descriptor() const { return descriptor_; }
  bool has_come() const;

  /// Takes note of what has come: from here on only another signal makes the descriptor readable, or is passed on.
  void heed() const;

  /// Whether the process that started this one sent the last signal, as mpirun and its daemons do.
  bool came_from_parent() const;

  /// From here on the signals do at once what they did before the first object of this class.
  void let_through() const;

  /// Ends the process by the signal that has come, if that still does so.
  [[noreturn]] void die() const;

 private:
  int descriptor_ = -1;  ///< the same for all objects
};

}  // namespace lockstep
