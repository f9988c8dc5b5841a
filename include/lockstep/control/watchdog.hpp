// The thread that turns a hang into a sentence: it finds ranks of this node that are gone, stopped or elsewhere.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/base/error.hpp>
#include <lockstep/control/phase_table.hpp>

namespace lockstep {

struct WatchdogOptions {
  /// How long a rank may be silent, or late for an agreement that others wait in.
  std::chrono::duration<double> stall_timeout{60};
  /// Time is counted in these: a job that was suspended and continued as a whole has not stalled. A tenth of the
  /// timeout where that is shorter.
  std::chrono::duration<double> tick{0.05};
};

/// Beats for this rank, and watches the other rows of the table:
///   gone     its process ended without leaving the job (seen at once, by the kernel's word; of SIGTERM only where this
///            rank gets none itself, as it does when the whole job is told to end)
///   stopped  its own watchdog has not beaten for the stall timeout
///   late     it runs, but others have waited for it in an agreement for the stall timeout
/// The first watchdog of the node to see it prints `lockstep: replica …` on stderr; then each ends the job.
class Watchdog {
 public:
  /// Ends the job with this exit code; called from the watchdog's thread, at most once. Need not return.
  using EndJob = std::function<void(ExitCode)>;

  /// `names[row]` is "replica 2 (worker:1, host b)". `table` must outlive the watchdog, and its rows be filled.
  /// From here to the destructor SIGTERM is handled: it ends the process, but only after a last look around, because
  /// it is how mpirun tells survivors that another rank died.
  Watchdog(PhaseTable& table, std::vector<std::string> names, WatchdogOptions options, EndJob end_job);
  Watchdog(const Watchdog&) = delete;

  /// Stops and joins the thread.
  ~Watchdog();

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace lockstep
