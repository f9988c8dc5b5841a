#include "runtime/node.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>

#include "comm/mpi/mpi_handle.hpp"

namespace lockstep {
namespace {

/// COLL over the node. The first rank makes the memory by `create`, the others open it. Nothing unless all of them
/// could.
std::optional<SharedMemory> share_memory(const MpiComm& node, std::size_t bytes, SharedMemory (*create)(std::size_t)) {
  std::optional<SharedMemory> memory;
  SharedMemory::Handle handle;
  const bool first = node.rank() == 0;
  const auto attempt = [&](auto&& make) {
    try {
      memory.emplace(make());
    } catch (const CommError& error) {
      log::debug(fmt::format("no shared memory on this node: {}", error.what()));
    }
  };
  if (first) attempt([&] { return create(bytes); });
  if (memory) handle = memory->handle();
  check_mpi(MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, node.get()), "MPI_Bcast");
  if (!first && handle.way != SharedMemory::Handle::Way::none)
    attempt([&] { return SharedMemory::open(handle, bytes); });
  int everyone = memory ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &everyone, 1, MPI_INT, MPI_MIN, node.get()), "MPI_Allreduce");
  if (first && memory) memory->take_over();
  check_mpi(MPI_Barrier(node.get()), "MPI_Barrier");
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
  node.of_rank.resize(static_cast<std::size_t>(world.size()));
  check_mpi(MPI_Allgather(&node.ranks.front(), 1, MPI_INT, node.of_rank.data(), 1, MPI_INT, world.get()),
            "MPI_Allgather");
  const std::size_t bytes = PhaseTable::bytes_for(shared.size());
  auto processes = PhaseTable::Processes::known;
  auto memory = share_memory(shared, bytes, SharedMemory::create);
  if (!memory) {
    // Processes that cannot look into each other may also not know each other by number: containers of their own.
    processes = PhaseTable::Processes::unknown;
    memory = share_memory(shared, bytes, SharedMemory::create_named);
  }
  if (memory) node.phases.emplace(*std::move(memory), shared.size(), shared.rank(), processes);
  check_mpi(MPI_Barrier(shared.get()), "MPI_Barrier");
  return node;
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

}  // namespace lockstep
