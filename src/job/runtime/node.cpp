#include "job/runtime/node.hpp"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/counted_time.hpp"
#include "core/base/log_settings.hpp"
#include "core/comm/mpi/mpi_handle.hpp"
#include "core/comm/mpi/share_memory.hpp"
#include "core/watch/heartbeat_sockets.hpp"
#include "core/watch/network.hpp"

namespace lockstep {
namespace {

/// COLL over the job. Whether `here` is true on every rank.
bool everywhere(const MpiComm& world, bool here) {
  int all = here ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, world.get()), "MPI_Allreduce");
  return all != 0;
}

enum class Reached { none, by_stream, by_datagram };

/// How this rank hears the others that it is to hear, at worst.
Reached how_heard(const Heartbeats& heartbeats, const PhaseTable& table) {
  if (!heartbeats.heard_all(table)) return Reached::none;
  for (int rank = 0; rank < heartbeats.nodes().ranks(); ++rank)
    if (heartbeats.missed_datagrams(rank).value_or(0) > 0) return Reached::by_stream;
  return Reached::by_datagram;
}

/// COLL over the job. Sends heartbeats until every rank has heard all that it should, or one has given up. How they
/// got through, at worst; the same on every rank.
Reached get_through(const MpiComm& world, Heartbeats& heartbeats, PhaseTable& table) {
  const auto now = [] { return CountedTime::Seconds{std::chrono::steady_clock::now().time_since_epoch()}; };
  constexpr CountedTime::Seconds patience{1}, longest_look{0.05};
  CountedTime waited{now(), longest_look};
  const auto exchange = [&] {
    heartbeats.send(table);
    heartbeats.receive(table);
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  };
  const auto reached = [&] { return how_heard(heartbeats, table); };
  do {
    exchange();
  } while (reached() != Reached::by_datagram && waited.look(now()) < patience);
  int worst = static_cast<int>(reached());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MIN, world.get(), &request), "MPI_Iallreduce");
  // A heartbeat to a rank that still waits for it may have been lost.
  for (int done = 0; done == 0;) {
    exchange();
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  }
  return static_cast<Reached>(worst);
}

void warn_of(Reached reached, const MpiComm& world, PhaseTable& table) {
  if (reached == Reached::by_datagram) return;
  // Said once: the watchdogs need not say it again.
  (void)table.claim_warning();
  if (world.rank() != 0) return;
  log::warning(reached == Reached::by_stream
                   ? "heartbeats do not get through between all nodes by UDP (any port): they go by TCP"
                   : "no heartbeats get through between some nodes, by UDP or TCP (any port): a rank that stops on one "
                     "of them is found by that node's ranks, or after ten times the stall timeout");
}

/// COLL over the job. The job's key, of rank 0; nothing if there is none.
std::optional<HeartbeatKey> share_key(const MpiComm& world) {
  HeartbeatKey key{};
  bool made = true;
  try {
    if (world.rank() == 0) key = make_heartbeat_key();
  } catch (const CommError& error) {
    log::debug(error.what());
    made = false;
  }
  check_mpi(MPI_Bcast(key.data(), static_cast<int>(key.size()), MPI_BYTE, 0, world.get()), "MPI_Bcast");
  return everywhere(world, made) ? std::optional{key} : std::nullopt;
}

/// COLL over the job, which has several nodes. Null unless every rank has heartbeats.
std::unique_ptr<Heartbeats> start_heartbeats(const MpiComm& world, const NodeMap& nodes, PhaseTable* table,
                                             const std::string& network) {
  std::unique_ptr<Heartbeats> heartbeats;
  try {
    if (table)
      heartbeats = std::make_unique<Heartbeats>(std::make_unique<HeartbeatSockets>(address_for_heartbeats(network)));
  } catch (const Error& error) {
    log::debug(error.what());
  }
  const auto key = share_key(world);
  if (!everywhere(world, key && heartbeats)) {
    if (world.rank() == 0)
      log::warning(
          "a node has no heartbeats (its system refuses sockets or shared memory): a rank that stops is found "
          "by its own node's ranks only, and a host that cannot be reached by nobody");
    return nullptr;
  }
  const HeartbeatAddress mine = heartbeats->address();
  std::vector<HeartbeatAddress> addresses(static_cast<std::size_t>(world.size()));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, addresses.data(), sizeof mine, MPI_BYTE, world.get()),
            "MPI_Allgather");
  heartbeats->connect(nodes, world.rank(), addresses, *key);
  warn_of(get_through(world, *heartbeats, *table), world, *table);
  return heartbeats;
}

}  // namespace

Node find_node(const std::string& network, std::optional<int> guest) {
  const MpiComm world = MpiComm::of_runtime(guest);
  const MpiComm shared = MpiComm::split_by_node(world.get());
  Node node;
  node.place = shared.rank();
  node.ranks.resize(static_cast<std::size_t>(shared.size()));
  const int rank = world.rank();
  const int ranks = world.size();
  check_mpi(MPI_Allgather(&rank, 1, MPI_INT, node.ranks.data(), 1, MPI_INT, shared.get()), "MPI_Allgather");
  std::vector<int> of_rank(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Allgather(&node.ranks.front(), 1, MPI_INT, of_rank.data(), 1, MPI_INT, world.get()), "MPI_Allgather");
  node.of_rank = std::move(of_rank);
  const std::size_t bytes = PhaseTable::bytes_for(ranks);
  auto processes = PhaseTable::Processes::known;
  if (shared.rank() == 0) SharedMemory::remove_abandoned();
  auto memory = share_memory(shared, bytes, SharedMemory::create);
  if (!memory) {
    // Processes that cannot access each other, such as in containers, may not know each other's numbers either.
    processes = PhaseTable::Processes::unknown;
    memory = share_memory(shared, bytes, SharedMemory::create_named);
  }
  if (memory) node.phases.emplace(*std::move(memory), ranks, rank, processes);
  check_mpi(MPI_Barrier(shared.get()), "MPI_Barrier");

  if (const NodeMap nodes{node.of_rank.all()}; nodes.nodes() > 1)
    node.heartbeats = start_heartbeats(world, nodes, node.phases ? &*node.phases : nullptr, network);
  return node;
}

}  // namespace lockstep
