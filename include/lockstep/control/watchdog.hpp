// The thread that turns a hang into a sentence: it finds ranks that are gone, stopped, elsewhere or out of reach.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/base/error.hpp>
#include <lockstep/control/heartbeats.hpp>
#include <lockstep/control/phase_table.hpp>

namespace lockstep {

struct WatchdogOptions {
  /// How long a rank may be silent, or late for an agreement that others wait in.
  std::chrono::duration<double> stall_timeout{60};
  /// Time is counted in these: a job that was suspended and continued as a whole has not stalled. A tenth of the
  /// timeout where that is shorter.
  std::chrono::duration<double> tick{0.05};
};

/// Whom the end of the job can still be told to.
enum class Reach {
  whole_job,    ///< every rank that is there
  chiefs_side,  ///< a node is out of reach, and rank 0's is not
  cut_off,      ///< rank 0's node is out of reach
};

/// Beats for this rank, and watches the other rows of the table:
///   gone     its process ended without leaving the job (seen at once, by the kernel's word; of SIGTERM only where this
///            rank gets none itself, as it does when the whole job is told to end)
///   stopped  its own watchdog has not beaten for the stall timeout
///   late     it runs, but others have waited for it in an agreement for the stall timeout
/// Of other nodes it knows what their heartbeats say, so there
///   gone     is a rank that was silent before this one was told to end, which the kernel cannot show here
///   out of reach is the lowest rank of a node of which none beats any more
/// and where everyone has come to an agreement and it does not end, the network is to blame.
/// The first watchdog of the node to see it prints `lockstep: replica …` on stderr, unless that of a node with lower
/// ranks does; then each ends the job.
class Watchdog {
 public:
  /// Ends the job with this exit code; called from the watchdog's thread, at most once. Need not return.
  using EndJob = std::function<void(ExitCode, Reach)>;

  /// `names[row]` is "replica 2 (worker:1, host b)". `table` must outlive the watchdog, and its rows be filled; so must
  /// `heartbeats`, which a job on several nodes has, connected. While the watchdog lives it alone may use them.
  /// From here to the destructor SIGTERM is handled: it ends the process, but only after a last look around, because
  /// it is how mpirun tells survivors that another rank died.
  Watchdog(PhaseTable& table, std::vector<std::string> names, WatchdogOptions options, EndJob end_job,
           Heartbeats* heartbeats = nullptr);
  Watchdog(const Watchdog&) = delete;

  /// Stops and joins the thread.
  ~Watchdog();

  /// What its thread has used of a core so far.
  std::chrono::nanoseconds cpu_time() const;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace lockstep
