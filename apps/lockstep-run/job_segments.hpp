// The shared memory of MPI that a job leaves behind.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace lockstep::run {

/// Open MPI's shared memory has names in /dev/shm, which mpirun removes when a job ends. Where mpirun is killed, they
/// stay. A name holds the host, the user and the number of the job, which is known in two ways: by what a process of
/// the job has mapped, and, for a job that died before anybody could look, by the process that mpirun was.
class JobSegments {
 public:
  /// Looks at what processes of the job have mapped.
  void learn(const std::vector<pid_t>& processes);

  /// To be called when no process of the job is left on this host, `mpirun` included. What a living process has mapped
  /// stays in any case.
  void remove(pid_t mpirun) const;

 private:
  std::set<std::string, std::less<>> jobs_;  ///< what the names begin with
};

/// What the names of all segments of a job begin with, by the path of one:
/// "/dev/shm/vader_segment.node1.1000.f4970001." by "/dev/shm/vader_segment.node1.1000.f4970001.0", of rank 0. Empty
/// for other files.
std::string_view job_of_segment(std::string_view path);

/// The upper half of the numbers of all jobs that this mpirun of Open MPI 4 starts: a digest of its host and process.
std::uint32_t job_family(std::string_view host, pid_t mpirun);

}  // namespace lockstep::run
