// Knows which simulated rank this thread is.
#pragma once

namespace lockstep::sim {

class Job;

/// Makes this thread a rank of `job` for as long as it lives.
class Current {
 public:
  Current(Job& job, int rank);
  Current(const Current&) = delete;
  ~Current();

  Job& job;
  const int rank;
};

}  // namespace lockstep::sim
