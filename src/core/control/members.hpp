// Which ranks of a job meet in one sequence of agreements.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

struct Members {
  std::vector<int> ranks = {};  ///< of the job, in the order in which they are counted here; empty for all of them
  std::uint64_t key = 0;        ///< the same on all of them, and another for each group; 0 for all ranks of the job
};

}  // namespace lockstep
