#include "core/watch/heartbeat_streams.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "core/watch/network.hpp"

namespace lockstep {
namespace {

// Anybody may connect. A stranger's connection costs a descriptor until it is dropped.
constexpr std::ptrdiff_t most_strangers = 16;
constexpr std::uint64_t receipts_of_a_stranger = 100;
// A rank that cannot be connected to is asked again, but not all the time.
constexpr std::uint64_t receipts_between_attempts = 8;

/// Small messages that are of no use later.
void send_at_once(int descriptor) {
  const int on = 1;
  (void)::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

HeartbeatStreams::HeartbeatStreams(std::uint32_t host)
    : listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)}, port_{bind_socket(listener_, host)} {
  if (::listen(listener_.get(), 64) != 0) throw heartbeat_error("listen");
}

void HeartbeatStreams::open(int rank, std::span<const std::uint32_t> hosts, std::uint16_t port) {
  const auto is_to = [&](const Connection& each) { return each.asked_for == rank; };
  for (const std::uint32_t host : hosts) {
    if (host == 0 || std::ranges::any_of(connections_, [&](const Connection& each) {
          return is_to(each) && (each.host == host || each.known);
        }))
      continue;
    Descriptor descriptor = start_connection(host, port);
    // An address of this host refuses at once.
    if (errno == ECONNREFUSED) answer(rank, host).refused = true;
    if (descriptor.get() < 0) return;
    send_at_once(descriptor.get());
    // What fails stays until it is asked for again.
    connections_.push_back(
        {.descriptor = std::move(descriptor), .asked_for = rank, .host = host, .connecting = true, .since = receipts_});
  }
}

void HeartbeatStreams::send(const SealedHeartbeat& message, std::optional<int> rank) {
  std::erase_if(connections_, [&](const Connection& each) {
    // A peer that connects must first identify itself.
    if (each.connecting || (!each.asked_for && !each.known)) return false;
    if (rank && each.asked_for != rank && each.sender != rank) return false;
    const auto sent = ::send(each.descriptor.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(message.size())) return false;
    // The other side has stopped, and will read what is on its way; a part of a message would end all.
    return sent >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  });
}

void HeartbeatStreams::receive(const Take& take) {
  ++receipts_;
  accept();
  std::erase_if(connections_, [&](Connection& each) { return !advance(each, take); });
  drop_surplus();
}

/// A message that somebody repeats passes for its sender. This bounds the descriptors that it can take.
void HeartbeatStreams::drop_surplus() {
  constexpr std::ptrdiff_t most_from_one = 2;  // one may be left from before the network failed
  for (auto each = connections_.begin(); each != connections_.end();) {
    const bool surplus = each->sender && std::count_if(each, connections_.end(), [&](const Connection& other) {
                                           return other.sender == each->sender;
                                         }) > most_from_one;
    each = surplus ? connections_.erase(each) : each + 1;
  }
}

void HeartbeatStreams::accept() {
  for (int more = 8; more > 0; --more) {
    Descriptor descriptor{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (descriptor.get() < 0) return;
    // The oldest goes, so that those who say nothing keep nobody out.
    const auto is_stranger = [](const Connection& each) { return !each.asked_for && !each.known; };
    if (std::ranges::count_if(connections_, is_stranger) >= most_strangers)
      connections_.erase(std::ranges::find_if(connections_, is_stranger));
    send_at_once(descriptor.get());
    connections_.push_back({.descriptor = std::move(descriptor), .since = receipts_});
  }
}

/// False if the connection is of no more use.
bool HeartbeatStreams::advance(Connection& connection, const Take& take) {
  if (connection.connecting && !has_connected(connection)) return connection.connecting;
  if (!connection.asked_for && !connection.known && receipts_ - connection.since > receipts_of_a_stranger) return false;
  return take_all(connection, take);
}

/// Otherwise it still tries, or has failed: then it stays for a while, so that the next attempt is not at once.
bool HeartbeatStreams::has_connected(Connection& connection) {
  pollfd wait{connection.descriptor.get(), POLLOUT, 0};
  if (::poll(&wait, 1, 0) <= 0) return false;
  const int error = error_of_connection(connection.descriptor);
  const bool failed = error != 0 || (wait.revents & (POLLERR | POLLHUP)) != 0;
  Answer& what = answer(*connection.asked_for, connection.host);
  if (error != 0) what.refused = error == ECONNREFUSED;
  if (!failed) {
    connection.connecting = what.refused = false;
    return true;
  }
  if (receipts_ - connection.since > receipts_between_attempts) connection.connecting = false;
  return false;
}

bool HeartbeatStreams::take_all(Connection& connection, const Take& take) {
  // As many as a rank sends in a long while, so that nobody can keep this one busy.
  for (int more = 256; more > 0; --more) {
    const auto got = ::recv(connection.descriptor.get(), connection.bytes.data() + connection.filled,
                            connection.bytes.size() - connection.filled, MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    connection.filled += static_cast<std::size_t>(got);
    if (connection.filled < connection.bytes.size()) continue;
    connection.filled = 0;
    const auto taken = take(connection.bytes);
    if (!taken) return false;
    if (!taken->sender) continue;
    // An address that several hosts have may lead to another rank.
    if (connection.asked_for && *connection.asked_for != *taken->sender) return false;
    if (connection.asked_for) {
      answer(*taken->sender, connection.host).reached = true;
    } else {
      connection.sender = taken->sender;
    }
    connection.known = true;
  }
  return true;
}

HeartbeatStreams::Answer& HeartbeatStreams::answer(int rank, std::uint32_t host) {
  const auto found =
      std::ranges::find_if(answers_, [&](const Answer& each) { return each.rank == rank && each.host == host; });
  if (found != answers_.end()) return *found;
  answers_.push_back({rank, host, false, false});
  return answers_.back();
}

bool HeartbeatStreams::was_refused(int rank, std::uint32_t heard_from) const {
  // An address is known to lead to a rank's host only if that rank's own heartbeats come from it.
  return std::ranges::any_of(answers_, [&](const Answer& each) {
    return each.rank == rank && each.refused && (each.reached || each.host == heard_from);
  });
}

void HeartbeatStreams::forget_refusals(int rank) {
  for (Answer& each : answers_)
    if (each.rank == rank) each.refused = false;
}

}  // namespace lockstep
