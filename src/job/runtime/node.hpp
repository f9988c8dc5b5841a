// The nodes of a job and their ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/control/phase_table.hpp"
#include "core/control/shared_table.hpp"
#include "core/watch/heartbeats.hpp"

namespace lockstep {

/// The ranks that share this rank's memory, and what they see of the job.
struct Node {
  std::vector<int> ranks;                  ///< ascending
  SharedTable<int> of_rank;                ///< for every rank of the job, the first rank of its node
  int place = 0;                           ///< of this rank among `ranks`
  std::optional<PhaseTable> phases;        ///< a row for each rank of the job; empty if the system shares no memory
  std::unique_ptr<Heartbeats> heartbeats;  ///< null if the job has one node, or the system of one has no sockets
};

/// COLL over `guest`, see make_mpi_channel, or over the job. When it returns, the rows of the node's ranks are filled
/// and, with heartbeats, those of all ranks that are heard. Heartbeats use `network`, see address_for_heartbeats. If
/// they are needed but do not get through, rank 0 logs it.
Node find_node(const std::string& network, std::optional<int> guest);

}  // namespace lockstep
