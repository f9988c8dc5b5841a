// Memory that the ranks of a node share, set up over MPI.
#pragma once

#include <optional>

#include "core/comm/mpi/mpi_handle.hpp"
#include "core/device/shared_memory.hpp"

namespace lockstep {

/// COLL over `node`, whose ranks share a node. The first rank makes the memory by `create` and reserves all of it; the
/// others open it. Nothing unless all of them succeed.
std::optional<SharedMemory> share_memory(const MpiComm& node, std::size_t bytes, SharedMemory (*create)(std::size_t));

}  // namespace lockstep
