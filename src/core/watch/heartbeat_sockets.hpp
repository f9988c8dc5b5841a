// Heartbeats over UDP, and over TCP where datagrams do not get through.
#pragma once

#include <cstdint>

#include "core/base/descriptor.hpp"
#include "core/watch/heartbeat_network.hpp"
#include "core/watch/heartbeat_streams.hpp"

namespace lockstep {

class HeartbeatSockets : public HeartbeatNetwork {
 public:
  /// Opens the sockets, at `host`, or at all addresses of this host if that is 0. CommError if the system refuses.
  explicit HeartbeatSockets(std::uint32_t host = 0);

  const HeartbeatAddress& address() const override { return address_; }
  int descriptor() const override { return socket_.get(); }
  void send(const SealedHeartbeat& message, std::uint32_t host, std::uint16_t port) override;
  void take_refusals(const Refused& refused) override;
  void receive(const Take& take) override;
  void open_stream(int rank, const HeartbeatAddress& there) override;
  void send_in_streams(const SealedHeartbeat& message, std::optional<int> rank) override;
  bool was_refused(int rank, std::uint32_t heard_from) const override;
  void forget_refusals(int rank) override;
  bool answers(const HeartbeatAddress& there) const override;

 private:
  Descriptor socket_;
  HeartbeatStreams streams_;
  HeartbeatAddress address_;
};

}  // namespace lockstep
