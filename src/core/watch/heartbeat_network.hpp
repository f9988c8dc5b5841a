// How the heartbeats of one rank travel: as datagrams, and in streams where these do not get through.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "core/watch/heartbeat_message.hpp"

namespace lockstep {

/// Where a rank listens: its ports and the addresses of its host. Plain bytes, to be exchanged.
struct HeartbeatAddress {
  static constexpr std::size_t most_hosts = 6;
  std::array<std::uint32_t, most_hosts> hosts{};  ///< in network byte order; unused ones are 0
  std::uint16_t port = 0;                         ///< for datagrams, in network byte order
  std::uint16_t stream_port = 0;                  ///< in network byte order
};

/// Systems have sockets (HeartbeatSockets), and a simulation has virtual time. All methods are LOCAL, and only
/// `answers` waits.
class HeartbeatNetwork {
 public:
  enum class Way { datagram, stream };

  /// What has come, if a rank of this job sent it, and not long ago.
  struct Taken {
    std::optional<int> sender;  ///< empty if it was passed on, which any rank does
  };
  /// `from` is the host that a datagram came from.
  using Take = std::function<std::optional<Taken>(std::span<const std::byte>, Way, std::uint32_t from)>;

  virtual ~HeartbeatNetwork() = default;

  virtual const HeartbeatAddress& address() const = 0;

  /// Readable when a datagram has come; -1 if there is no such thing.
  virtual int descriptor() const = 0;

  /// A datagram to one host. It may be lost.
  virtual void send(const SealedHeartbeat& message, std::uint32_t host, std::uint16_t port) = 0;

  /// Hands over where nobody received a datagram, as the host there has said.
  using Refused = std::function<void(std::uint32_t host, std::uint16_t port)>;
  virtual void take_refusals(const Refused& refused) = 0;

  /// Hands over what has come.
  virtual void receive(const Take& take) = 0;

  /// Connects to `rank`, unless it does so already. From then on, each can send to the other in a stream.
  virtual void open_stream(int rank, const HeartbeatAddress& there) = 0;

  /// In all streams, or only to `rank`, if there is one.
  virtual void send_in_streams(const SealedHeartbeat& message, std::optional<int> rank) = 0;

  /// Whether a host of `rank` said last that nobody listens there: `heard_from`, or one where it was reached before.
  virtual bool was_refused(int rank, std::uint32_t heard_from) const = 0;

  /// `rank` was heard, in whichever way: what refused its connection before was not the end of its process.
  virtual void forget_refusals(int rank) = 0;

  /// Whether the system of that host takes a connection, or refuses it. If not, this takes up to a third of a second.
  virtual bool answers(const HeartbeatAddress& there) const = 0;
};

}  // namespace lockstep
