// What the ranks of one node learn about those of others: a datagram now and then, with the sender's row of the phase
// table in it. Not over MPI: nothing here may wait, slow a collective down, or fail with the thing that it watches.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/control/node_map.hpp>
#include <lockstep/control/phase_table.hpp>

namespace lockstep {

/// The heartbeats of one rank: its own go to one rank of every other node, and it hears those of some ranks of others
/// (NodeMap::carrier), whose rows it writes. All methods are LOCAL, and none but host_answers waits for anything.
class Heartbeats {
 public:
  /// Where a rank hears: the UDP port of its socket and the IPv4 addresses of its host. Plain bytes, to be exchanged.
  struct Address {
    static constexpr std::size_t most_hosts = 6;
    std::array<std::uint32_t, most_hosts> hosts{};  ///< in network byte order; 0 where there are fewer
    std::uint16_t port = 0;                         ///< in network byte order
  };

  /// Opens the socket. CommError where the system has none to give.
  Heartbeats();
  Heartbeats(const Heartbeats&) = delete;
  ~Heartbeats();

  const Address& address() const { return address_; }

  /// `addresses` are all ranks'. `job` is the same number on every rank and unlike other jobs': what does not carry it
  /// is ignored.
  void connect(NodeMap nodes, int rank, std::span<const Address> addresses, std::uint64_t job);

  const NodeMap& nodes() const { return *nodes_; }

  /// Sends this rank's row. To every address of each host: which one leads there is the network's business.
  void send(const PhaseTable& table);

  /// Writes what has come since into the rows that it is about. Where another node says that the failure has been
  /// reported, that is noted in the table.
  void receive(PhaseTable& table);

  /// Whether the system of a rank's host said that nobody is there to get what this rank sends it: its process ended.
  /// Only of a rank that was heard before.
  bool was_refused(int rank) const;

  /// Whether the host of a rank of another node answers, though its ranks may not: its system refuses a connection that
  /// nobody there waits for. Takes up to a third of a second where it does not.
  bool host_answers(int rank) const;

  /// Whether each rank that this one is to hear has been heard.
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
