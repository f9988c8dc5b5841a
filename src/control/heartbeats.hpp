// What the ranks of one node learn about the ranks of others: an occasional datagram with the sender's row of the phase
// table. It does not use MPI: nothing here may wait, slow a collective down, or fail together with what it watches.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "control/node_map.hpp"
#include "control/phase_table.hpp"

namespace lockstep {

/// The heartbeats of one rank. It sends its own to one rank of every other node, hears those of some ranks of other
/// nodes (NodeMap::carrier), and writes their rows. All methods are LOCAL, and only host_answers waits.
class Heartbeats {
 public:
  /// Where a rank listens: the UDP port of its socket and the IPv4 addresses of its host. Plain bytes, to be exchanged.
  struct Address {
    static constexpr std::size_t most_hosts = 6;
    std::array<std::uint32_t, most_hosts> hosts{};  ///< in network byte order; unused ones are 0
    std::uint16_t port = 0;                         ///< in network byte order
  };

  /// Opens the socket. CommError if the system refuses.
  Heartbeats();
  Heartbeats(const Heartbeats&) = delete;
  ~Heartbeats();

  const Address& address() const { return address_; }

  /// `addresses` are those of all ranks. `job` is the same number on every rank and differs from other jobs'; datagrams
  /// with another number are ignored.
  void connect(NodeMap nodes, int rank, std::span<const Address> addresses, std::uint64_t job);

  const NodeMap& nodes() const { return *nodes_; }

  /// Sends this rank's row to every address of each host: which of them leads there is up to the network.
  void send(const PhaseTable& table);

  /// Writes the rows that have arrived since the last call. If another node says that the failure has been reported,
  /// notes that in the table.
  void receive(PhaseTable& table);

  /// Whether the host of `rank` has said that nobody receives what this rank sends there: that rank's process has
  /// ended. Only for a rank that was heard before.
  bool was_refused(int rank) const;

  /// Whether the host of a rank of another node answers, even if its ranks do not: its system refuses a connection that
  /// nobody there waits for. If it does not answer, this takes up to a third of a second.
  bool host_answers(int rank) const;

  /// Whether every rank that this one is to hear has been heard.
  bool heard_all(const PhaseTable& table) const;

 private:
  struct Socket;
  std::unique_ptr<Socket> socket_;
  Address address_;
  std::unique_ptr<NodeMap> nodes_;
  std::vector<Address> addresses_;
  int rank_ = 0;
  std::uint64_t job_ = 0;
};

}  // namespace lockstep
