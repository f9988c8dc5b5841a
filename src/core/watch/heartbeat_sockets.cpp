#include "core/watch/heartbeat_sockets.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include <linux/errqueue.h>
#include <poll.h>
#include <sys/socket.h>

#include "core/base/counted_time.hpp"
#include "core/watch/network.hpp"

namespace lockstep {
namespace {

/// Where others may reach this host: the loopback address only if there are no others.
std::vector<std::uint32_t> shown_hosts() {
  std::vector<std::uint32_t> hosts;
  const Network loopback{htonl(INADDR_LOOPBACK), 8};
  for (const HostAddress& each : host_addresses())
    if (!loopback.has(each.address)) hosts.push_back(each.address);
  if (hosts.empty()) hosts.push_back(loopback.address);
  return hosts;
}

}  // namespace

HeartbeatSockets::HeartbeatSockets(std::uint32_t host)
    : socket_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)}, streams_{host} {
  address_.port = bind_socket(socket_, host);
  address_.stream_port = streams_.port();
  const int told = 1;
  if (::setsockopt(socket_.get(), SOL_IP, IP_RECVERR, &told, sizeof told) != 0) throw heartbeat_error("setsockopt");
  const std::vector<std::uint32_t> hosts = host != 0 ? std::vector{host} : shown_hosts();
  std::copy_n(hosts.begin(), std::min(hosts.size(), HeartbeatAddress::most_hosts), address_.hosts.begin());
}

void HeartbeatSockets::send(const SealedHeartbeat& message, std::uint32_t host, std::uint16_t port) {
  const sockaddr_in address = socket_address(host, port);
  // What is said about an earlier datagram, to whichever address, comes out of the next call, which then sends
  // nothing. A datagram that cannot be sent is one that does not arrive; the other side draws its conclusions.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto sent = ::sendto(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK) return;
  }
}

/// From the errors that came back for datagrams that did not arrive.
void HeartbeatSockets::take_refusals(const Refused& refused) {
  while (true) {
    sockaddr_in target = {};
    alignas(cmsghdr) char control[512];
    msghdr header = {};
    header.msg_name = &target;
    header.msg_namelen = sizeof target;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (::recvmsg(socket_.get(), &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (const cmsghdr* each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, const_cast<cmsghdr*>(each))) {
      if (each->cmsg_level != SOL_IP || each->cmsg_type != IP_RECVERR) continue;
      sock_extended_err error;
      std::memcpy(&error, CMSG_DATA(each), sizeof error);
      if (error.ee_errno == ECONNREFUSED) refused(target.sin_addr.s_addr, target.sin_port);
    }
  }
}

void HeartbeatSockets::receive(const Take& take) {
  // One more than the longest, to notice what is longer.
  std::array<std::byte, sealed_heartbeat_bytes + 1> bytes;
  // As many as a buffer holds, so that whoever sends others without end does not keep this thread.
  for (int more = 1024; more > 0; --more) {
    sockaddr_in source = {};
    socklen_t length = sizeof source;
    const auto size = ::recvfrom(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&source), &length);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    // What is said about a datagram that this rank sent comes out of this call too.
    if (size >= 0)
      (void)take(std::span{bytes}.first(static_cast<std::size_t>(size)), Way::datagram, source.sin_addr.s_addr);
  }
  streams_.receive([&](std::span<const std::byte> message) { return take(message, Way::stream, 0); });
}

void HeartbeatSockets::open_stream(int rank, const HeartbeatAddress& there) {
  streams_.open(rank, there.hosts, there.stream_port);
}

void HeartbeatSockets::send_in_streams(const SealedHeartbeat& message, std::optional<int> rank) {
  streams_.send(message, rank);
}

bool HeartbeatSockets::was_refused(int rank, std::uint32_t heard_from) const {
  return streams_.was_refused(rank, heard_from);
}

void HeartbeatSockets::forget_refusals(int rank) {
  streams_.forget_refusals(rank);
}

bool HeartbeatSockets::answers(const HeartbeatAddress& there) const {
  std::vector<Descriptor> knocks;
  for (const std::uint32_t host : there.hosts) {
    // An address that both hosts have, such as that of a container bridge, would lead to ourselves.
    const bool ours = std::find(address_.hosts.begin(), address_.hosts.end(), host) != address_.hosts.end();
    if (host != 0 && !ours) knocks.push_back(start_connection(host, there.stream_port));
  }
  const auto now = [] { return CountedTime::Seconds{std::chrono::steady_clock::now().time_since_epoch()}; };
  constexpr CountedTime::Seconds patience{0.3}, longest_look{0.05};
  CountedTime waited{now(), longest_look};
  while (!knocks.empty() && waited.look(now()) < patience) {
    for (auto each = knocks.begin(); each != knocks.end();) {
      pollfd wait{each->get(), POLLOUT, 0};
      const bool over = ::poll(&wait, 1, 10) > 0;
      // Without a way to the host it ends as well.
      if (const int error = over ? error_of_connection(*each) : -1; error == 0 || error == ECONNREFUSED) return true;
      each = over ? knocks.erase(each) : each + 1;
    }
  }
  return false;
}

}  // namespace lockstep
