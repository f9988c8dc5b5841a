#include "core/watch/heartbeats.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <linux/errqueue.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/counted_time.hpp"
#include "core/base/open_line.hpp"
#include "core/watch/network.hpp"

namespace lockstep {
namespace {

// Only who brings something this new is taken for its sender: a message may come both as a datagram and in a stream.
constexpr std::uint64_t newest_messages = 64;

/// The line of progress is the chief's. The end of all lines may be any node's.
void note_open_line(const PhaseTable& table, const HeartbeatMessage& message) {
  if (message.rank != 0 && message.open_line != OpenLine::over) return;
  std::uint32_t before = table.open_line();
  while (before != static_cast<std::uint32_t>(OpenLine::over) &&
         !table.open_line().compare_exchange_weak(before, static_cast<std::uint32_t>(message.open_line)))
    continue;
}

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

Heartbeats::Heartbeats(std::uint32_t host)
    : socket_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)}, streams_{host} {
  if (::sodium_init() < 0) throw CommError{"heartbeats between nodes: libsodium does not start"};
  address_.port = bind_socket(socket_, host);
  address_.stream_port = streams_.port();
  const int told = 1;
  if (::setsockopt(socket_.get(), SOL_IP, IP_RECVERR, &told, sizeof told) != 0) throw heartbeat_error("setsockopt");
  const std::vector<std::uint32_t> hosts = host != 0 ? std::vector{host} : shown_hosts();
  std::copy_n(hosts.begin(), std::min(hosts.size(), Address::most_hosts), address_.hosts.begin());
}

void Heartbeats::connect(NodeMap nodes, int rank, std::span<const Address> addresses, const HeartbeatKey& key) {
  nodes_ = std::move(nodes);
  addresses_.assign(addresses.begin(), addresses.end());
  heard_.resize(addresses.size());
  rank_ = rank;
  key_ = key;
  for (int other = 0; other < nodes_->ranks(); ++other)
    if (is_to_hear(other)) hears_.push_back(other);
  for (int node = 0; node < nodes_->nodes(); ++node) {
    if (!nodes_->are_near(node, nodes_->node_of(rank))) continue;
    const int carrier = nodes_->carrier(rank, node);
    const Address& there = addresses[static_cast<std::size_t>(carrier)];
    for (const std::uint32_t host : there.hosts)
      if (host != 0) targets_.push_back({carrier, socket_address(host, there.port)});
  }
}

bool Heartbeats::is_near(int rank) const {
  return nodes_->are_near(nodes_->node_of(rank), nodes_->node_of(rank_));
}

bool Heartbeats::is_to_hear(int rank) const {
  const int here = nodes_->node_of(rank_);
  return nodes_->node_of(rank) != here && nodes_->carrier(rank, here) == rank_;
}

/// Finds out what became of datagrams that did not arrive, from the errors that came back.
void Heartbeats::read_errors() {
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
      if (error.ee_errno == ECONNREFUSED) refuse(target);
    }
  }
}

void Heartbeats::refuse(const sockaddr_in& address) {
  for (Target& target : targets_)
    if (target.address.sin_addr.s_addr == address.sin_addr.s_addr && target.address.sin_port == address.sin_port)
      target.refused = true;
}

void Heartbeats::send(const SealedHeartbeat& message, const sockaddr_in& address) const {
  // What is said about an earlier datagram, to whichever address, comes out of the next call, which then sends
  // nothing. A datagram that cannot be sent is one that does not arrive; the other side draws its conclusions.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto sent = ::sendto(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK) return;
  }
}

SealedHeartbeat Heartbeats::sealed(const PhaseTable& table, std::optional<NodeMap::Route> route) {
  return seal({.sequence = ++sequence_,
               .row = table.read(rank_),
               .rank = rank_,
               .reported = table.reported(),
               .warned = table.warned(),
               .route = static_cast<std::uint16_t>(route ? static_cast<std::uint32_t>(*route) + 1 : 0),
               .open_line = static_cast<OpenLine>(table.open_line().load()),
               .observed = table.observed(),
               .questions = table.questions(),
               .wishes = table.wishes(),
               .lost = static_cast<std::uint32_t>(table.lost().value_or(-1) + 1)},
              key_);
}

void Heartbeats::send(const PhaseTable& table) {
  const SealedHeartbeat message = sealed(table, {});
  read_errors();
  for (const Target& target : targets_) send(message, target.address);
  streams_.send(message);
}

void Heartbeats::send_around(const PhaseTable& table) {
  using Route = NodeMap::Route;
  // Where several nodes do not pass rows on, other ways may lead around them.
  const bool long_first = std::exchange(around_by_long_steps_, !around_by_long_steps_);
  for (const Route route : {long_first ? Route::up_by_long_steps : Route::up_by_short_steps,
                            long_first ? Route::down_by_long_steps : Route::down_by_short_steps})
    send_on(route, rank_, sealed(table, route));
}

/// To the nodes that are next.
void Heartbeats::send_on(NodeMap::Route route, int origin, const SealedHeartbeat& message) {
  for (const int node : nodes_->next_on(route, nodes_->node_of(origin), nodes_->node_of(rank_))) {
    const int carrier = nodes_->carrier(origin, node);
    const Address& there = addresses_[static_cast<std::size_t>(carrier)];
    const std::uint32_t known = heard_[static_cast<std::size_t>(carrier)].from;
    for (const std::uint32_t host : there.hosts)
      if (known != 0 ? host == known : host != 0) send(message, socket_address(host, there.port));
    streams_.send_to(carrier, message);
  }
}

void Heartbeats::receive(PhaseTable& table) {
  ++receipts_;
  pass_on(table);
  ask_where_silent();
}

void Heartbeats::pass_on(PhaseTable& table) {
  read_errors();
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
    if (size < 0) continue;
    (void)take(std::span{bytes}.first(static_cast<std::size_t>(size)), Way::datagram, source.sin_addr.s_addr, table);
  }
  streams_.receive([&](std::span<const std::byte> message) { return take(message, Way::stream, 0, table); });
}

/// Writes what is new, and passes it on. Nothing if it is forged or old.
std::optional<HeartbeatStreams::Taken> Heartbeats::take(std::span<const std::byte> bytes, Way way, std::uint32_t from,
                                                        PhaseTable& table) {
  const auto message = open_sealed(bytes, key_, nodes_->ranks());
  if (!message || nodes_->same_node(message->rank, rank_)) return std::nullopt;
  Heard& heard = heard_[static_cast<std::size_t>(message->rank)];
  std::optional<int> sender;
  if (message->route == 0) {
    sender = message->rank;
  } else {
    std::uint64_t& passed_on = heard.passed_on[message->route - 1];
    if (!is_to_hear(message->rank) || message->sequence <= passed_on) return HeartbeatStreams::Taken{};
    passed_on = message->sequence;
    SealedHeartbeat copy;
    std::ranges::copy(bytes, copy.begin());
    send_on(static_cast<NodeMap::Route>(message->route - 1), message->rank, copy);
  }
  // Datagrams may overtake each other, and may arrive twice: by two routes, or because someone repeats them.
  const bool is_recent = heard.sequence < message->sequence + newest_messages;
  if (message->sequence > heard.sequence) note(*message, way, from, table);
  return is_recent ? std::optional{HeartbeatStreams::Taken{sender}} : std::nullopt;
}

/// What the newest message of a rank says.
void Heartbeats::note(const HeartbeatMessage& message, Way way, std::uint32_t from, PhaseTable& table) {
  Heard& heard = heard_[static_cast<std::size_t>(message.rank)];
  heard.sequence = message.sequence;
  if (!is_to_hear(message.rank)) return;
  heard.at = receipts_;
  if (message.route == 0) {
    heard.missed = way == Way::stream ? heard.missed + 1 : 0;
    if (way == Way::datagram) heard.from = from;
  }
  for (Target& target : targets_)
    if (target.rank == message.rank) target.refused = false;
  streams_.forget_refusals(message.rank);
  table.write(message.rank, message.row);
  if (message.reported) (void)table.claim_report();
  if (message.warned) (void)table.claim_warning();
  if (message.observed.count != heard.observed) {
    heard.observed = message.observed.count;
    // Those that are near this node, but not near that one, hear of it from here.
    if (table.observe(message.observed.row)) table.show_observed(message.observed.row);
  }
  table.note(message.questions);
  table.note_wishes(message.wishes);
  if (message.lost != 0) table.note_lost(static_cast<int>(message.lost) - 1);
  note_open_line(table, message);
}

/// Also where its host refuses datagrams: it may be a firewall that does.
void Heartbeats::ask_where_silent() {
  for (const int rank : hears_) {
    const bool near = is_near(rank);
    if (!near && !all_expected_at_) continue;
    const bool refused =
        std::ranges::any_of(targets_, [&](const Target& target) { return target.rank == rank && target.refused; });
    const Address& there = addresses_[static_cast<std::size_t>(rank)];
    const std::uint64_t heard_at = heard_[static_cast<std::size_t>(rank)].at;
    const bool is_silent = near ? receipts_ - heard_at > ask_after_.first
                                : receipts_ - std::max(heard_at, *all_expected_at_) > ask_after_.second;
    if (refused || is_silent) streams_.open(rank, there.hosts, there.stream_port);
  }
}

void Heartbeats::expect_all(bool all) {
  if (all != all_expected_at_.has_value()) all_expected_at_ = all ? std::optional{receipts_} : std::nullopt;
}

bool Heartbeats::was_refused(int rank) const {
  return streams_.was_refused(rank, heard_[static_cast<std::size_t>(rank)].from);
}

bool Heartbeats::host_answers(int rank) const {
  const Address& there = addresses_[static_cast<std::size_t>(rank)];
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

bool Heartbeats::heard_all(const PhaseTable& table) const {
  return std::ranges::none_of(hears_,
                              [&](int rank) { return is_near(rank) && table.read(rank).phase == Phase::absent; });
}

std::optional<std::uint64_t> Heartbeats::missed_datagrams(int rank) const {
  if (!is_near(rank) || !is_to_hear(rank)) return std::nullopt;
  return heard_[static_cast<std::size_t>(rank)].missed;
}

}  // namespace lockstep
