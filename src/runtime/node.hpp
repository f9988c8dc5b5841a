// The ranks of a job by node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/control/phase_table.hpp>

namespace lockstep {

/// The ranks that share this rank's memory, and which share theirs.
struct Node {
  std::vector<int> ranks;            ///< ascending
  std::vector<int> of_rank;          ///< of every rank of the job: the first rank of its node
  int place = 0;                     ///< of this rank among them
  std::optional<PhaseTable> phases;  ///< a row each, in the same order; none where the system shares no memory
};

/// COLL over the job. Every row of the table is filled when it returns.
Node find_node();

/// This operating-system host's name.
std::string host_name();

}  // namespace lockstep
