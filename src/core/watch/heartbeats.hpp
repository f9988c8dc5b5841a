// What the ranks of one node learn about the ranks of others: an occasional datagram with the sender's row of the phase
// table. It does not use MPI: nothing here may wait, slow a collective down, or fail together with what it watches.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/control/phase_table.hpp"
#include "core/watch/heartbeat_message.hpp"
#include "core/watch/heartbeat_network.hpp"
#include "core/watch/node_map.hpp"

namespace lockstep {

/// The heartbeats of one rank. It sends its own to one rank of every node near its own, hears those of some ranks there
/// (NodeMap::carrier), and writes their rows. A row that is sent around comes to all other nodes, which pass it on. A
/// rank whose datagrams do not come is asked over TCP. All methods are LOCAL, and only host_answers waits.
class Heartbeats {
 public:
  /// How long a rank that has said a line of the job lives on: near nodes must hear of the line before they miss it.
  static constexpr std::chrono::milliseconds until_line_is_known{250};

  explicit Heartbeats(std::unique_ptr<HeartbeatNetwork> network);
  Heartbeats(const Heartbeats&) = delete;

  const HeartbeatAddress& address() const { return network_->address(); }

  /// `addresses` are those of all ranks. What is not sealed with `key`, which only they have, is ignored.
  void connect(NodeMap nodes, int rank, std::span<const HeartbeatAddress> addresses, const HeartbeatKey& key);

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
  int descriptor() const { return network_->descriptor(); }

  /// Whether the host of `rank`, which was heard before, says that its process has ended: nobody receives there.
  bool was_refused(int rank) const;

  /// Whether the host of a rank of another node answers, even if its ranks do not: its system takes a connection, or
  /// refuses it. If it does not answer, this takes up to a third of a second.
  bool host_answers(int rank) const;

  /// Whether every rank of near nodes that this one is to hear has been heard.
  bool heard_all(const PhaseTable& table) const;

  /// How many heartbeats of `rank`, of a near node, came over TCP since its last datagram; empty if another rank is to
  /// hear it.
  std::optional<std::uint32_t> missed_datagrams(int rank) const;

 private:
  using Way = HeartbeatNetwork::Way;
  /// What is known of a rank that this one is to hear.
  struct Heard {
    int rank;
    std::uint32_t sequence = 0;                              ///< of its newest message
    std::uint32_t at = 0;                                    ///< the call of `receive` that brought it
    std::uint32_t missed = 0;                                ///< messages that came in a stream since its last datagram
    std::uint32_t from = 0;                                  ///< the host that sent that; 0 if none came
    std::uint32_t observed = 0;                              ///< of its node
    std::array<std::uint32_t, NodeMap::routes> passed_on{};  ///< the sequence of its newest message on each route
  };
  /// Where a rank listens.
  struct Door {
    std::uint32_t hosts;  ///< in `hosts_`
    std::uint16_t port, stream_port;
  };
  /// Where datagrams of this rank go.
  struct Target {
    int rank;
    std::uint32_t host;
    std::uint16_t port;
    bool refused = false;  ///< the last that was sent there
  };

  void read_refusals();
  SealedHeartbeat sealed(const PhaseTable& table, std::optional<NodeMap::Route> route);
  void send_on(NodeMap::Route route, int origin, const SealedHeartbeat& message);
  bool is_near(int rank) const;
  bool is_to_hear(int rank) const;
  HeartbeatAddress address_of(int rank) const;
  const Heard* heard(int rank) const;
  Heard* heard(int rank) { return const_cast<Heard*>(std::as_const(*this).heard(rank)); }
  std::optional<HeartbeatNetwork::Taken> take(std::span<const std::byte> bytes, Way way, std::uint32_t from,
                                              PhaseTable& table);
  void note(const HeartbeatMessage& message, Heard& sender, Way way, std::uint32_t from, PhaseTable& table);
  void ask_where_silent();

  std::unique_ptr<HeartbeatNetwork> network_;
  std::vector<Target> targets_;
  std::optional<NodeMap> nodes_;
  // A job may have thousands of ranks, and those of a node share its hosts.
  std::vector<decltype(HeartbeatAddress::hosts)> hosts_;
  std::vector<Door> doors_;              ///< by rank
  std::vector<Heard> heard_;             ///< of the ranks that this one is to hear for its node, ascending
  std::map<int, std::uint32_t> others_;  ///< of other ranks: the sequence of the newest message
  int rank_ = 0;
  HeartbeatKey key_{};
  std::uint32_t sequence_ = 0;
  bool around_by_long_steps_ = true;
  std::uint32_t receipts_ = 0;
  std::pair<std::uint64_t, std::uint64_t> ask_after_{40, 40};
  std::optional<std::uint32_t> all_expected_at_;  ///< the call of `receive` after which all were
};

}  // namespace lockstep
