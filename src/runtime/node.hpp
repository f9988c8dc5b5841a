// The ranks of a job by node.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/control/heartbeats.hpp>
#include <lockstep/control/phase_table.hpp>

namespace lockstep {

/// The ranks that share this rank's memory, and what they see of the job.
struct Node {
  std::vector<int> ranks;                  ///< ascending
  std::vector<int> of_rank;                ///< of every rank of the job: the first rank of its node
  int place = 0;                           ///< of this rank among them
  std::optional<PhaseTable> phases;        ///< a row for each rank of the job; none where the system shares no memory
  std::unique_ptr<Heartbeats> heartbeats;  ///< none where the job has one node, or datagrams do not get through
};

/// COLL over the job. The rows of the node's ranks are filled when it returns, and with heartbeats those of all. Where
/// there should be some and are none, rank 0 says so.
Node find_node();

/// This operating-system host's name.
std::string host_name();

}  // namespace lockstep
