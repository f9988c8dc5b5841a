// A job under mpirun: starting it, hearing what it says, and leaving nothing of it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "apps/lockstep-run/child.hpp"
#include "apps/lockstep-run/job_report.hpp"
#include "apps/lockstep-run/job_segments.hpp"
#include "apps/lockstep-run/line_catcher.hpp"
#include "apps/lockstep-run/rank_label.hpp"
#include "core/base/descriptor.hpp"

namespace lockstep::run {

/// A process and all that it starts. They write to this process's stdout; what they write to stderr passes through
/// here. They read nothing. If this process ends in any way, the job is told to end (SIGTERM).
///
/// The constructor throws Error if the command cannot be run. One at a time, on the thread that lives longest, in a
/// process that has adopted orphans and has parted from strangers (strangers.hpp).
class RunningJob {
 public:
  /// The command runs with `environment`. Its lines may have `labels`.
  RunningJob(const std::vector<std::string>& command, const ChildEnvironment& environment,
             const RankLabels& labels = {});
  RunningJob(const RunningJob&) = delete;
  /// Kills what is left.
  ~RunningJob();

  /// Readable when the job has written to stderr.
  int stderr_descriptor() const { return stderr_.get(); }
  /// Writes on what it has written.
  void relay();

  void signal(int number) const;

  /// Sends it to each rank on this host that has a handler for it. False if there is none.
  bool signal_ranks(int number) const;

  /// Whether its ranks have met, as the chief says, or one runs on this host. It looks at the job's processes, so it
  /// need not be asked often.
  bool has_begun();

  /// Looks whether the command has ended: its exit code, or 128 + the signal that ended it. Waits for orphans that
  /// have.
  std::optional<int> poll();

  /// Once the command has ended: waits for what has outlived it, which are the orphans of this process, and kills it if
  /// that takes long. Another user's processes are left. Removes what MPI has left in shared memory. The second time it
  /// does nothing: the number of the process may be another's by then.
  void end_what_is_left(std::chrono::milliseconds patience = patience_with_ranks);

  /// Whether a signal ended the command itself.
  bool was_killed() const { return was_killed_; }

  const JobReport& report() const { return reader_.report(); }

 private:
  // Ranks that lose mpirun end by themselves.
  static constexpr std::chrono::seconds patience_with_ranks{3};

  Descriptor stderr_;
  pid_t id_ = 0;
  bool ended_ = false;
  bool nothing_is_left_ = false;
  bool was_killed_ = false;
  bool has_begun_ = false;
  JobReader reader_;
  LineCatcher begun_;
  JobSegments segments_;
};

/// From here on, processes that a job leaves behind become children of this one, which then finds them.
void adopt_orphans();

}  // namespace lockstep::run
