#include "runtime/node.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>

#include "comm/mpi/mpi_handle.hpp"

namespace lockstep {
namespace {

/// The first rank of the node makes the memory, the others open it. No table unless all of them could.
std::optional<SharedMemory> share_memory(const MpiComm& node, std::size_t bytes) {
  std::optional<SharedMemory> memory;
  SharedMemory::Handle handle;
  const auto attempt = [&](auto&& make) {
    try {
      memory.emplace(make());
    } catch (const CommError& error) {
      log::debug(fmt::format("no shared memory on this node: {}", error.what()));
    }
  };
  if (node.rank() == 0) {
    attempt([&] { return SharedMemory::create(bytes); });
    if (memory) handle = memory->handle();
  }
  check_mpi(MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, node.get()), "MPI_Bcast");
  if (node.rank() != 0 && handle.descriptor >= 0) attempt([&] { return SharedMemory::open(handle, bytes); });
  int everyone = memory ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &everyone, 1, MPI_INT, MPI_MIN, node.get()), "MPI_Allreduce");
  if (!everyone) memory.reset();
  return memory;
}

}  // namespace

Node find_node() {
  const MpiComm world = MpiComm::duplicate(MPI_COMM_WORLD);
  const MpiComm shared = MpiComm::split_by_node(world.get());
  Node node;
  node.place = shared.rank();
  node.ranks.resize(static_cast<std::size_t>(shared.size()));
  const int rank = world.rank();
  check_mpi(MPI_Allgather(&rank, 1, MPI_INT, node.ranks.data(), 1, MPI_INT, shared.get()), "MPI_Allgather");
  if (auto memory = share_memory(shared, PhaseTable::bytes_for(shared.size())))
    node.phases.emplace(*std::move(memory), shared.size(), shared.rank());
  check_mpi(MPI_Barrier(shared.get()), "MPI_Barrier");
  return node;
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

}  // namespace lockstep
