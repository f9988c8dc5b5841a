// What the ranks of one node learn about the ranks of others: an occasional datagram with the sender's row of the phase
// table. It does not use MPI: nothing here may wait, slow a collective down, or fail together with what it watches.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <netinet/in.h>

#include "core/base/descriptor.hpp"
#include "core/control/phase_table.hpp"
#include "core/watch/heartbeat_message.hpp"
#include "core/watch/heartbeat_streams.hpp"
#include "core/watch/node_map.hpp"

namespace lockstep {

/// The heartbeats of one rank. It sends its own to one rank of every node near its own, hears those of some ranks there
/// (NodeMap::carrier), and writes their rows. A row that is sent around comes to all other nodes, which pass it on. A
/// rank whose datagrams do not come is asked over TCP. All methods are LOCAL, and only host_answers waits.
class Heartbeats {
 public:
  /// Where a rank listens: the ports of its sockets and the IPv4 addresses of its host. Plain bytes, to be exchanged.
  struct Address {
    static constexpr std::size_t most_hosts = 6;
    std::array<std::uint32_t, most_hosts> hosts{};  ///< in network byte order; unused ones are 0
    std::uint16_t port = 0;                         ///< for UDP, in network byte order
    std::uint16_t stream_port = 0;                  ///< for TCP, in network byte order
  };

  /// Opens the sockets, at `host`, or at all addresses of this host if that is 0. CommError if the system refuses.
  explicit Heartbeats(std::uint32_t host = 0);
  Heartbeats(const Heartbeats&) = delete;

  const Address& address() const { return address_; }

  /// `addresses` are those of all ranks. What is not sealed with `key`, which only they have, is ignored.
  void connect(NodeMap nodes, int rank, std::span<const Address> addresses, const HeartbeatKey& key);

  const NodeMap& nodes() const { return *nodes_; }

  /// Asks a rank over TCP after this many calls of `receive` in which nothing came from it; of another than a near
  /// node, after the second number.
  void ask_after(std::uint64_t receipts, std::uint64_t receipts_if_far) { ask_after_ = {receipts, receipts_if_far}; }

  /// Whether ranks of all nodes send their rows around from here on. Those that do not come are asked for.
  void expect_all(bool all);

  /// Sends this rank's row to every address of each near host: which of them leads there is up to the network.
  void send(const PhaseTable& table);

  /// Sends it to all other nodes, on a route up the ring of nodes and one down.
  void send_around(const PhaseTable& table);

  /// Writes the rows that have arrived since the last call, passes on those that others sent around, and notes in the
  /// table what is said once for the job.
  void receive(PhaseTable& table);

  /// The same, without asking for rows that have not arrived. Soon after `descriptor` is readable, rows travel quickly.
  void pass_on(PhaseTable& table);
  int descriptor() const { return socket_.get(); }

  /// Whether the host of `rank`, which was heard before, says that its process has ended: nobody receives there.
  bool was_refused(int rank) const;

  /// Whether the host of a rank of another node answers, even if its ranks do not: its system takes a connection, or
  /// refuses it. If it does not answer, this takes up to a third of a second.
  bool host_answers(int rank) const;

  /// Whether every rank of near nodes that this one is to hear has been heard.
  bool heard_all(const PhaseTable& table) const;

  /// How many heartbeats of `rank`, of a near node, came over TCP since its last datagram; empty if another rank is to
  /// hear it.
  std::optional<std::uint64_t> missed_datagrams(int rank) const;

 private:
  enum class Way { datagram, stream };
  /// What is known of a rank of another node.
  struct Heard {
    std::uint64_t sequence = 0;                              ///< of its newest message
    std::uint64_t at = 0;                                    ///< the call of `receive` that brought it
    std::uint64_t missed = 0;                                ///< messages that came in a stream since its last datagram
    std::uint32_t from = 0;                                  ///< the host that sent that; 0 if none came
    std::uint32_t observed = 0;                              ///< of its node
    std::array<std::uint64_t, NodeMap::routes> passed_on{};  ///< the sequence of its newest message on each route
  };
  /// Where datagrams of this rank go.
  struct Target {
    int rank;
    sockaddr_in address;
    bool refused = false;  ///< the last that was sent there
  };

  void read_errors();
  void refuse(const sockaddr_in& address);
  SealedHeartbeat sealed(const PhaseTable& table, std::optional<NodeMap::Route> route);
  void send(const SealedHeartbeat& message, const sockaddr_in& address) const;
  void send_on(NodeMap::Route route, int origin, const SealedHeartbeat& message);
  bool is_near(int rank) const;
  bool is_to_hear(int rank) const;
  std::optional<HeartbeatStreams::Taken> take(std::span<const std::byte> bytes, Way way, std::uint32_t from,
                                              PhaseTable& table);
  void note(const HeartbeatMessage& message, Way way, std::uint32_t from, PhaseTable& table);
  void ask_where_silent();

  Descriptor socket_;
  HeartbeatStreams streams_;
  std::vector<Target> targets_;
  Address address_;
  std::optional<NodeMap> nodes_;
  std::vector<Address> addresses_;
  std::vector<Heard> heard_;  ///< by rank
  std::vector<int> hears_;    ///< the ranks that this one is to hear for its node
  int rank_ = 0;
  HeartbeatKey key_{};
  std::uint64_t sequence_ = 0;
  bool around_by_long_steps_ = true;
  std::uint64_t receipts_ = 0;
  std::pair<std::uint64_t, std::uint64_t> ask_after_{40, 40};
  std::optional<std::uint64_t> all_expected_at_;  ///< the call of `receive` after which all were
};

}  // namespace lockstep
