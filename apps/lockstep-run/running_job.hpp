// A job under mpirun: starting it, hearing what it says, and leaving nothing of it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "apps/lockstep-run/job_report.hpp"
#include "base/descriptor.hpp"

namespace lockstep::run {

/// A process and all that it starts. They write to this process's stdout; what they write to stderr passes through
/// here. They read nothing. If this process ends in any way, the job is told to end (SIGTERM).
///
/// The constructor throws Error if the command cannot be run. One at a time, on the thread that lives longest: the
/// kernel tells the job when its thread ends.
class RunningJob {
 public:
  /// `without` names the variables of the environment that the command does not get.
  RunningJob(const std::vector<std::string>& command, const std::vector<std::string>& without);
  RunningJob(const RunningJob&) = delete;
  /// Kills what is left.
  ~RunningJob();

  /// Readable when the job has written to stderr.
  int stderr_descriptor() const { return stderr_.get(); }
  /// Writes on what it has written.
  void relay();

  void signal(int number) const;

  /// Looks whether the command has ended: its exit code, or 128 + the signal that ended it. Afterwards nothing of the
  /// job is left on this machine: processes that outlived the command are killed.
  std::optional<int> poll();

  const JobReport& report() const { return reader_.report(); }

 private:
  void end_what_is_left();

  Descriptor stderr_;
  pid_t id_ = 0;
  bool ended_ = false;
  JobReader reader_;
};

/// From here on, processes that a job leaves behind become children of this one, which then finds them.
void adopt_orphans();

}  // namespace lockstep::run
