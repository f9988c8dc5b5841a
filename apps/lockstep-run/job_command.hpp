// The command that starts a job: mpirun, where the ranks run, and the program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep-run/command_line.hpp"
#include "apps/lockstep-run/placement.hpp"
#include "apps/lockstep-run/supervision.hpp"
#include "core/base/descriptor.hpp"

namespace lockstep::run {

/// `line.mpirun` with the network between the hosts: what starts the job, and what asks hosts.
std::vector<std::string> mpirun_of(const CommandLine& line);

/// A start of a program and its arguments. With a cluster spec, mpirun takes the host of each rank from a
/// file, and the job takes its tasks from TF_CONFIG.
class JobCommand {
 public:
  /// `threads` is how many each rank computes with; if more than one, mpirun binds no rank to a core.
  JobCommand(const CommandLine& line, const Start& start, std::vector<std::string> program, int threads = 1);

  /// Mpirun and all that it is given, ready to be started by this process: sets TF_CONFIG in its environment, for a job
  /// with a cluster spec. The file of hosts is in memory, and there as long as this object.
  std::vector<std::string> words();

  /// The same as lines for a shell.
  std::string script() const;

 private:
  /// With those of this process's variables that the job gets, where mpirun gives it none.
  std::vector<std::string> words_with(const std::string& hostfile, const std::vector<std::string>& variables) const;

  const CommandLine& line_;
  Start start_;
  std::vector<std::string> program_;
  int threads_;
  std::optional<Placement> placement_;
  Descriptor hostfile_;
};

}  // namespace lockstep::run
