#include "runtime/node.hpp"

#include <chrono>
#include <random>
#include <thread>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>

#include "comm/mpi/mpi_handle.hpp"
#include "comm/mpi/share_memory.hpp"

namespace lockstep {
namespace {

/// COLL over the job. Whether `here` is true on every rank.
bool everywhere(const MpiComm& world, bool here) {
  int all = here ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, world.get()), "MPI_Allreduce");
  return all != 0;
}

/// COLL over the job. Sends heartbeats until every rank has heard all that it should, or one has given up.
bool get_through(const MpiComm& world, Heartbeats& heartbeats, PhaseTable& table) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{1};
  const auto exchange = [&] {
    heartbeats.send(table);
    heartbeats.receive(table);
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  };
  while (!heartbeats.heard_all(table) && std::chrono::steady_clock::now() < deadline) exchange();
  int heard = heartbeats.heard_all(table) ? 1 : 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, &heard, 1, MPI_INT, MPI_MIN, world.get(), &request), "MPI_Iallreduce");
  // A datagram to a rank that still waits for it may have been lost.
  for (int done = 0; done == 0;) {
    exchange();
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  }
  return heard != 0;
}

/// COLL over the job, which has several nodes. Null unless every rank has heartbeats.
std::unique_ptr<Heartbeats> start_heartbeats(const MpiComm& world, const NodeMap& nodes, PhaseTable* table) {
  std::unique_ptr<Heartbeats> heartbeats;
  try {
    if (table) heartbeats = std::make_unique<Heartbeats>();
  } catch (const CommError& error) {
    log::debug(error.what());
  }
  std::uint64_t job = std::random_device{}();
  check_mpi(MPI_Bcast(&job, 1, MPI_UINT64_T, 0, world.get()), "MPI_Bcast");
  if (!everywhere(world, heartbeats != nullptr)) return nullptr;
  const Heartbeats::Address mine = heartbeats->address();
  std::vector<Heartbeats::Address> addresses(static_cast<std::size_t>(world.size()));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, addresses.data(), sizeof mine, MPI_BYTE, world.get()),
            "MPI_Allgather");
  heartbeats->connect(nodes, world.rank(), addresses, job);
  if (get_through(world, *heartbeats, *table)) return heartbeats;
  // Ranks that were heard will not be heard again; that must not count as silence.
  for (int rank = 0; rank < nodes.ranks(); ++rank)
    if (!nodes.same_node(rank, world.rank())) table->write(rank, PhaseTable::Snapshot{});
  return nullptr;
}

}  // namespace

Node find_node() {
  const MpiComm world = MpiComm::duplicate(MPI_COMM_WORLD);
  const MpiComm shared = MpiComm::split_by_node(world.get());
  Node node;
  node.place = shared.rank();
  node.ranks.resize(static_cast<std::size_t>(shared.size()));
  const int rank = world.rank();
  const int ranks = world.size();
  check_mpi(MPI_Allgather(&rank, 1, MPI_INT, node.ranks.data(), 1, MPI_INT, shared.get()), "MPI_Allgather");
  node.of_rank.resize(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Allgather(&node.ranks.front(), 1, MPI_INT, node.of_rank.data(), 1, MPI_INT, world.get()),
            "MPI_Allgather");
  const std::size_t bytes = PhaseTable::bytes_for(ranks);
  auto processes = PhaseTable::Processes::known;
  auto memory = share_memory(shared, bytes, SharedMemory::create);
  if (!memory) {
    // Processes that cannot access each other may not know each other's process numbers either: each in its own
    // container.
    processes = PhaseTable::Processes::unknown;
    memory = share_memory(shared, bytes, SharedMemory::create_named);
  }
  if (memory) node.phases.emplace(*std::move(memory), ranks, rank, processes);
  check_mpi(MPI_Barrier(shared.get()), "MPI_Barrier");

  if (const NodeMap nodes{node.of_rank}; nodes.nodes() > 1) {
    node.heartbeats = start_heartbeats(world, nodes, node.phases ? &*node.phases : nullptr);
    if (!node.heartbeats && rank == 0)
      log::warning(
          "no heartbeats get through between the nodes (UDP, any port): a rank that stops on one of them is "
          "found by that node's ranks only, and a host that cannot be reached by nobody");
  }
  return node;
}

}  // namespace lockstep
