// Another way for heartbeats, where datagrams do not get through: TCP. Nothing here waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/base/descriptor.hpp"
#include "core/watch/heartbeat_network.hpp"

namespace lockstep {

/// Connections to ranks of other nodes. The rank that misses another's heartbeats connects to it; from then on each
/// sends its own to the other. All methods are LOCAL. Addresses and ports are in network byte order.
class HeartbeatStreams {
 public:
  using Take = std::function<std::optional<HeartbeatNetwork::Taken>(std::span<const std::byte>)>;

  /// Listens at one address of this host, 0 for all. CommError if the system refuses.
  explicit HeartbeatStreams(std::uint32_t host);

  std::uint16_t port() const { return port_; }

  /// Connects to `rank`, wherever in `hosts` (some may be 0) that is, unless it does so already.
  void open(int rank, std::span<const std::uint32_t> hosts, std::uint16_t port);

  /// To all, or only to `rank`, if there is a connection with it.
  void send(const SealedHeartbeat& message, std::optional<int> rank);

  /// Hands what has come to `take`, and drops connections of strangers.
  void receive(const Take& take);

  /// Whether a host of `rank` said last that nobody listens there: `heard_from`, or one where it was reached before.
  bool was_refused(int rank, std::uint32_t heard_from) const;

  /// `rank` was heard, in whichever way: what refused its connection before was not the end of its process.
  void forget_refusals(int rank);

 private:
  struct Connection {
    Descriptor descriptor;
    std::optional<int> asked_for;  ///< the rank that this one connected to; empty if the other side connected
    std::optional<int> sender;     ///< if the other side connected: the rank that it said it was
    std::uint32_t host = 0;
    bool connecting = false;
    bool known = false;  ///< it has brought a message of the job
    std::uint64_t since = 0;
    std::array<std::byte, sealed_heartbeat_bytes> bytes{};
    std::size_t filled = 0;
  };
  /// What asking for a rank at an address came to.
  struct Answer {
    int rank;
    std::uint32_t host;
    bool refused;
    bool reached;
  };

  void accept();
  void drop_surplus();
  bool advance(Connection& connection, const Take& take);
  bool has_connected(Connection& connection);
  bool take_all(Connection& connection, const Take& take);
  Answer& answer(int rank, std::uint32_t host);

  Descriptor listener_;
  std::uint16_t port_;
  std::uint64_t receipts_ = 0;
  std::vector<Connection> connections_;
  std::vector<Answer> answers_;
};

}  // namespace lockstep
