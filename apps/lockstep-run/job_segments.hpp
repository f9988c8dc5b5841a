// The shared memory of MPI that a job leaves behind.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace lockstep::run {

/// Open MPI's shared memory has names in /dev/shm, which mpirun removes when a job ends. Where mpirun is killed, they
/// stay. A name holds the host, the user and the number of the job; it is known from what a process of the job has
/// mapped, so no other job's is ever taken for it.
class JobSegments {
 public:
  /// Looks at what processes of the job have mapped.
  void learn(const std::vector<pid_t>& processes);

  /// To be called when no process of the job is left on this host.
  void remove() const;

 private:
  std::set<std::string, std::less<>> jobs_;  ///< what the names begin with
};

/// What the names of all segments of a job begin with, by the path of one:
/// "/dev/shm/vader_segment.node1.1000.f4970001." by "/dev/shm/vader_segment.node1.1000.f4970001.0", of rank 0. Empty
/// for other files.
std::string_view job_of_segment(std::string_view path);

}  // namespace lockstep::run
