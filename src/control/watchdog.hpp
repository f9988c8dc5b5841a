// The thread that turns a hang into a sentence: it finds ranks that are gone, stopped, late or out of reach.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/base/error.hpp>

#include "control/heartbeats.hpp"
#include "control/phase_table.hpp"

namespace lockstep {

struct WatchdogOptions {
  /// How long a rank may be silent, or late for an agreement in which others wait.
  std::chrono::duration<double> stall_timeout{60};
  /// Time is counted in ticks, so a job that was suspended and resumed as a whole has not stalled. Capped at a tenth
  /// of the timeout.
  std::chrono::duration<double> tick{0.05};
  /// If set, a stall does not end the job. Instead this is called with the sentence that would have ended it, from the
  /// watchdog's thread: once for each stall, on one rank of the job.
  std::function<void(const std::string&)> on_stall = {};
  /// If set, it is called once, from the watchdog's thread, on the rank that would say that the job was interrupted.
  /// The ranks of the node then have a moment to end the job in order. For a program that saves what it has made.
  std::function<void()> on_interrupted = {};
  /// If set, it is called from the watchdog's thread when the process that started this one has ended. It does not
  /// return: no line of this rank reaches anybody from here on.
  std::function<void()> on_orphaned = {};
};

/// Which ranks can still be told that the job ends.
enum class Reach {
  whole_job,    ///< every rank that is left
  chiefs_side,  ///< a node is out of reach, but not rank 0's
  cut_off,      ///< rank 0's node is out of reach
};

/// Beats for this rank, and watches the other rows of the table. A rank of this node can be
///   gone          its process ended without leaving the job. The kernel shows this at once, and whether it killed the
///                 process for memory. An end by SIGTERM counts only if this rank gets none itself, as it does when the
///                 whole job is told to end
///   stopped       its watchdog has not beaten for the stall timeout
///   late          it runs, but others have waited for it in an agreement for the stall timeout
/// Ranks of other nodes are known by their heartbeats, and by the agreements that they make possible. One of those can
/// also be
///   gone          its host refuses heartbeats for it, or it fell silent, after SIGTERM or before this rank got one
///   out of reach  it is the lowest rank of a node whose ranks are all silent and whose host does not answer
///   mute          it takes part in agreements, but no heartbeat gets through. It may then work alone without our
///                 knowing, so it is late only after ten times the stall timeout
/// If every rank has come to an agreement that does not end, the network is to blame. If heartbeats get through by TCP
/// alone, or not at all while the job goes on, one rank of the job warns of that, once.
///
/// The node's first watchdog to see a failure prints `lockstep: replica …` on stderr, unless a node with lower ranks
/// prints it. Then each watchdog ends the job.
class Watchdog {
 public:
  /// Ends the job with this exit code. Called at most once, from the watchdog's thread. Need not return.
  using EndJob = std::function<void(ExitCode, Reach)>;

  /// `names[row]` is "replica 2 (worker:1, host b)". `table`, with its rows filled, must outlive the watchdog. So must
  /// `heartbeats`, connected, which only the watchdog may use while it lives; null if the job has none. SIGTERM and
  /// SIGINT are handled until the destructor. They end the process only after a last look around: mpirun tells
  /// survivors by SIGTERM that another rank died, and all ranks that it was interrupted. In the second case the lowest
  /// rank that it told says so.
  Watchdog(PhaseTable& table, std::vector<std::string> names, WatchdogOptions options, EndJob end_job,
           Heartbeats* heartbeats = nullptr);
  Watchdog(const Watchdog&) = delete;

  /// Stops and joins the thread.
  ~Watchdog();

  /// The CPU time that its thread has used so far.
  std::chrono::nanoseconds cpu_time() const;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace lockstep
