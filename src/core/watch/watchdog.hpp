// The thread that turns a hang into a sentence: it finds ranks that are gone, stopped, late or out of reach.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <lockstep/core/base/error.hpp>

#include "core/control/phase_table.hpp"
#include "core/watch/heartbeats.hpp"
#include "core/watch/judgement.hpp"
#include "core/watch/kept_signals.hpp"

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
  /// If set, it is called from the watchdog's thread when the process that started this one has ended, and does not
  /// return: no line reaches anybody any more.
  std::function<void()> on_orphaned = {};
  /// If set, it is called from the watchdog's thread of each rank, once, when a failure is reported or another rank has
  /// reported it, before this rank ends the job. Need not return.
  std::function<void(const std::string& sentence, Error::ExitCode)> on_lost = {};
  /// With `none`, SIGTERM ends this process at once. A rank that SIGTERM has ended counts as one that was told to end:
  /// this one may be about to be ended too, as mpirun does with a whole job.
  KeptSignals::Keep signals = KeptSignals::Keep::both;
  /// See WatchedJob. Longer where the ranks of other nodes are ended first, and nobody keeps SIGTERM to say so.
  std::chrono::duration<double> refusal{0.3};
  /// If set, it is called from the watchdog's thread when a rank is gone. If true, the job has lost others before,
  /// which are not watched here, and this watchdog says nothing.
  std::function<bool()> has_lost_others = {};
  /// How long the launcher waits after the end of a rank until it tells the others to end.
  std::chrono::duration<double> launcher_waits{1};
};

/// Beats for this rank, watches the other rows of the table, and acts on what `judge_look` makes of them. The node's
/// first watchdog to see a failure prints `lockstep: replica …` on stderr, unless a node with lower ranks prints it.
/// Then each watchdog ends the job.
class Watchdog {
 public:
  /// Ends the job with this exit code. Called at most once, from the watchdog's thread. Need not return.
  using EndJob = std::function<void(Error::ExitCode, Reach)>;

  /// `names[row]` is "replica 2 (worker:1, host b)". `table`, with its rows filled, must outlive the watchdog. So must
  /// `heartbeats`, connected, which only the watchdog may use while it lives; null if the job has none. Until the
  /// destructor, SIGTERM and SIGINT (KeptSignals) end the process only after a last look around. If mpirun was
  /// interrupted, the lowest rank that it told says so.
  Watchdog(PhaseTable& table, TableOnDemand<std::string> names, WatchdogOptions options, EndJob end_job,
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
