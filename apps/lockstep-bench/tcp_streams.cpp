#include "apps/lockstep-bench/tcp_streams.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/system_error.hpp"
#include "core/watch/network.hpp"

namespace lockstep::bench {
namespace {

constexpr std::size_t piece_bytes = 256 << 10;
constexpr int longest_wait_ms = 60000;

void check_call(long result, const char* call) {
  if (result < 0) throw CommError{fmt::format("TCP streams: {}: {}", call, error_text(errno))};
}

/// As MPI does, looks for a while before it sleeps.
void wait_for(std::vector<pollfd>& polled) {
  constexpr int looks = 1000;
  int ready = 0;
  for (int i = 0; i < looks && ready == 0; ++i) {
    ready = ::poll(polled.data(), polled.size(), 0);
    if (ready == 0) ::sched_yield();
  }
  while (ready == 0 || (ready < 0 && errno == EINTR)) {
    ready = ::poll(polled.data(), polled.size(), longest_wait_ms);
    if (ready == 0) break;
  }
  check_call(ready, "poll");
  if (ready == 0) throw CommError{fmt::format("TCP streams: nothing moved for {} s", longest_wait_ms / 1000)};
}

/// In network byte order.
std::uint32_t own_address(const MpiBaseline& mpi, const std::string& network) {
  if (const std::uint32_t named = address_for_heartbeats(network)) return named;
  if (mpi.ranks_on_node() < mpi.ranks())
    for (const HostAddress& each : host_addresses())
      if (ntohl(each.address) >> 24 != IN_LOOPBACKNET) return each.address;
  return htonl(INADDR_LOOPBACK);
}

void wait_for(const Descriptor& stream, short events) {
  std::vector<pollfd> polled{{stream.get(), events, 0}};
  wait_for(polled);
}

Descriptor open_socket() {
  Descriptor made{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  check_call(made.get(), "socket");
  return made;
}

/// A connection to a door, which is told who is at this end.
Descriptor connect(const sockaddr_in& door, int rank) {
  Descriptor made = open_socket();
  if (::connect(made.get(), reinterpret_cast<const sockaddr*>(&door), sizeof door) != 0) {
    if (errno != EINPROGRESS) check_call(-1, "connect");
    wait_for(made, POLLOUT);
    int error = 0;
    socklen_t length = sizeof error;
    check_call(::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &length), "getsockopt");
    errno = error;
    check_call(-error, "connect");
  }
  check_call(::send(made.get(), &rank, sizeof rank, MSG_NOSIGNAL), "send");
  return made;
}

/// The next connection, and the rank that says it is at its other end.
std::pair<int, Descriptor> accept(const Descriptor& door) {
  wait_for(door, POLLIN);
  Descriptor made{::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  check_call(made.get(), "accept");
  int rank = -1;
  wait_for(made, POLLIN);
  const ssize_t received = ::recv(made.get(), &rank, sizeof rank, 0);
  check_call(received, "recv");
  if (received != sizeof rank) throw CommError{"recv: a connection ended before it said which rank it is"};
  return {rank, std::move(made)};
}

}  // namespace

TcpStreams::TcpStreams(MpiBaseline& mpi, const std::string& network)
    : streams_(static_cast<std::size_t>(mpi.ranks())), out_(piece_bytes), in_(piece_bytes) {
  const Descriptor door = open_socket();
  sockaddr_in address = socket_address(own_address(mpi, network), 0);
  socklen_t length = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  check_call(::bind(door.get(), place, length), "bind");
  check_call(::listen(door.get(), SOMAXCONN), "listen");
  check_call(::getsockname(door.get(), place, &length), "getsockname");
  const std::vector<std::uint64_t> all =
      mpi.gather(std::uint64_t{address.sin_addr.s_addr} << 16 | std::uint64_t{address.sin_port});
  const int rank = mpi.rank();
  for (int to = 0; to < rank; ++to) {
    const std::uint64_t there = all[static_cast<std::size_t>(to)];
    address = socket_address(static_cast<std::uint32_t>(there >> 16), static_cast<std::uint16_t>(there));
    streams_[static_cast<std::size_t>(to)] = connect(address, rank);
  }
  for (int left = mpi.ranks() - 1 - rank; left > 0; --left) {
    auto [from, made] = accept(door);
    streams_.at(static_cast<std::size_t>(from)) = std::move(made);
  }
  const int on = 1;
  for (const Descriptor& stream : streams_) {
    if (stream.get() < 0) continue;
    check_call(::setsockopt(stream.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt");
  }
}

std::string TcpStreams::congestion_control() const {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t length = name.size() - 1;
  const auto first = std::ranges::find_if(streams_, [](const Descriptor& stream) { return stream.get() >= 0; });
  check_call(::getsockopt(first->get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length), "getsockopt");
  return name.data();
}

void TcpStreams::exchange(std::int64_t bytes) {
  std::vector<Left> left = nothing();
  for (std::size_t rank = 0; rank < left.size(); ++rank)
    if (streams_[rank].get() >= 0) left[rank] = {bytes, bytes};
  move(std::move(left));
}

void TcpStreams::send(int to, std::int64_t bytes) {
  std::vector<Left> left = nothing();
  left[static_cast<std::size_t>(to)].sent = bytes;
  move(std::move(left));
}

void TcpStreams::receive(int from, std::int64_t bytes) {
  std::vector<Left> left = nothing();
  left[static_cast<std::size_t>(from)].received = bytes;
  move(std::move(left));
}

void TcpStreams::move(std::vector<Left> left) {
  const auto next = [](std::int64_t bytes) { return std::min(static_cast<std::size_t>(bytes), piece_bytes); };
  const auto moved = [](ssize_t bytes, std::int64_t& of, const char* call) {
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    check_call(bytes, call);
    if (bytes == 0) throw CommError{"TCP streams: another rank has closed its connection"};
    of -= bytes;
  };
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<Left*> whose;
    for (std::size_t rank = 0; rank < left.size(); ++rank) {
      const int events = (left[rank].sent > 0 ? POLLOUT : 0) | (left[rank].received > 0 ? POLLIN : 0);
      if (events == 0) continue;
      polled.push_back({streams_[rank].get(), static_cast<short>(events), 0});
      whose.push_back(&left[rank]);
    }
    if (polled.empty()) return;
    wait_for(polled);
    for (std::size_t i = 0; i < polled.size(); ++i) {
      Left& of = *whose[i];
      const auto [stream, asked, ready] = polled[i];
      // An error is one for the call that meets it.
      if (of.received > 0 && ready & (POLLIN | POLLERR | POLLHUP))
        moved(::recv(stream, in_.data(), next(of.received), 0), of.received, "recv");
      if (of.sent > 0 && ready & (POLLOUT | POLLERR | POLLHUP))
        moved(::send(stream, out_.data(), next(of.sent), MSG_NOSIGNAL), of.sent, "send");
    }
  }
}

}  // namespace lockstep::bench
