#include "control/heartbeats.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <lockstep/base/error.hpp>

#include "base/descriptor.hpp"
#include "base/open_line.hpp"

namespace lockstep {
namespace {

/// What travels. All ranks run the same program on the same kind of machine.
struct Message {
  std::uint64_t job;
  std::uint64_t heartbeat;
  std::uint64_t meeting;
  std::uint32_t count;
  std::int32_t rank;
  Phase phase;
  TagKind kind;
  bool terminated;
  bool reported;
  OpenLine open_line;
  char site[Tag::site_capacity];
  Position position;
};
static_assert(std::is_trivially_copyable_v<Message>);

CommError system_error(const char* call) {
  return CommError{fmt::format("heartbeats between nodes: {}: {}", call, std::strerror(errno))};
}

/// The line of progress is the chief's. The end of all lines may be any node's.
void note_open_line(const PhaseTable& table, const Message& message) {
  if (message.rank != 0 && message.open_line != OpenLine::over) return;
  std::uint32_t before = table.open_line();
  while (before != static_cast<std::uint32_t>(OpenLine::over) &&
         !table.open_line().compare_exchange_weak(before, static_cast<std::uint32_t>(message.open_line)))
    continue;
}

sockaddr_in address_of(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  address.sin_port = port;
  return address;
}

/// This host's addresses; the loopback address only if there are no others.
std::vector<std::uint32_t> host_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw system_error("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned{first, ::freeifaddrs};
  std::vector<std::uint32_t> hosts;
  std::uint32_t loopback = htonl(INADDR_LOOPBACK);
  for (const ifaddrs* each = first; each; each = each->ifa_next) {
    if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET) continue;
    if (!(each->ifa_flags & IFF_UP) || (each->ifa_flags & IFF_LOOPBACK)) continue;
    sockaddr_in address;
    std::memcpy(&address, each->ifa_addr, sizeof address);
    hosts.push_back(address.sin_addr.s_addr);
  }
  if (hosts.empty()) hosts.push_back(loopback);
  return hosts;
}

/// Starts a connection to a port where nobody listens.
Descriptor knock(std::uint32_t host, std::uint16_t port) {
  Descriptor descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const sockaddr_in target = address_of(host, port);
  (void)::connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target);
  return descriptor;
}

/// Whether the host's system refused the connection, or even accepted it. Without a way to the host it ends as well.
bool was_answered(int descriptor) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && (error == 0 || error == ECONNREFUSED);
}

}  // namespace

struct Heartbeats::Socket {
  struct Target {
    int rank;
    sockaddr_in address;
    bool refused = false;
  };

  Descriptor descriptor;
  std::vector<Target> targets;
  std::vector<std::uint32_t> heard_from;  ///< by rank; 0 if not heard

  /// Finds out what became of datagrams that did not arrive, from the errors that came back.
  void read_errors() {
    while (true) {
      sockaddr_in target = {};
      alignas(cmsghdr) char control[512];
      msghdr header = {};
      header.msg_name = &target;
      header.msg_namelen = sizeof target;
      header.msg_control = control;
      header.msg_controllen = sizeof control;
      if (::recvmsg(descriptor.get(), &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
      for (const cmsghdr* each = CMSG_FIRSTHDR(&header); each;
           each = CMSG_NXTHDR(&header, const_cast<cmsghdr*>(each))) {
        if (each->cmsg_level != SOL_IP || each->cmsg_type != IP_RECVERR) continue;
        sock_extended_err error;
        std::memcpy(&error, CMSG_DATA(each), sizeof error);
        if (error.ee_errno == ECONNREFUSED) refuse(target);
      }
    }
  }

  void refuse(const sockaddr_in& address) {
    // An address is known to lead to a rank's host only if that rank's own heartbeats come from it.
    for (Target& target : targets)
      if (target.address.sin_addr.s_addr == address.sin_addr.s_addr && target.address.sin_port == address.sin_port &&
          heard_from[static_cast<std::size_t>(target.rank)] == address.sin_addr.s_addr)
        target.refused = true;
  }
};

Heartbeats::Heartbeats() : socket_{std::make_unique<Socket>()} {
  socket_->descriptor = Descriptor{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const int descriptor = socket_->descriptor.get();
  if (descriptor < 0) throw system_error("socket");
  sockaddr_in any = address_of(htonl(INADDR_ANY), 0);
  socklen_t length = sizeof any;
  if (::bind(descriptor, reinterpret_cast<sockaddr*>(&any), length) != 0) throw system_error("bind");
  const int told = 1;
  if (::setsockopt(descriptor, SOL_IP, IP_RECVERR, &told, sizeof told) != 0) throw system_error("setsockopt");
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&any), &length) != 0) throw system_error("getsockname");
  address_.port = any.sin_port;
  std::size_t count = 0;
  for (const std::uint32_t host : host_addresses())
    if (count < Address::most_hosts) address_.hosts[count++] = host;
}

Heartbeats::~Heartbeats() = default;

void Heartbeats::connect(NodeMap nodes, int rank, std::span<const Address> addresses, std::uint64_t job) {
  nodes_ = std::make_unique<NodeMap>(std::move(nodes));
  addresses_.assign(addresses.begin(), addresses.end());
  socket_->heard_from.resize(addresses.size());
  rank_ = rank;
  job_ = job;
  for (int node = 0; node < nodes_->nodes(); ++node) {
    if (node == nodes_->node_of(rank)) continue;
    const int carrier = nodes_->carrier(rank, node);
    const Address& there = addresses[static_cast<std::size_t>(carrier)];
    for (const std::uint32_t host : there.hosts)
      if (host != 0) socket_->targets.push_back({carrier, address_of(host, there.port)});
  }
}

void Heartbeats::send(const PhaseTable& table) {
  const auto row = table.read(rank_);
  Message message = {};  // padding too: only our own bytes leave the process
  message.job = job_;
  message.heartbeat = row.heartbeat;
  message.meeting = row.meeting;
  message.count = row.last.count;
  message.rank = rank_;
  message.phase = row.phase;
  message.kind = row.last.kind;
  message.terminated = row.terminated;
  message.reported = table.reported();
  message.open_line = static_cast<OpenLine>(table.open_line().load());
  std::memcpy(message.site, row.last.site, sizeof message.site);
  message.position = row.position;
  // A datagram that cannot be sent is one that does not arrive; the other side draws its conclusions.
  for (const Socket::Target& target : socket_->targets)
    (void)::sendto(socket_->descriptor.get(), &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL,
                   reinterpret_cast<const sockaddr*>(&target.address), sizeof target.address);
}

void Heartbeats::receive(PhaseTable& table) {
  socket_->read_errors();
  const int here = nodes_->node_of(rank_);
  Message message;
  while (true) {
    sockaddr_in source = {};
    socklen_t length = sizeof source;
    const auto size = ::recvfrom(socket_->descriptor.get(), &message, sizeof message, MSG_DONTWAIT | MSG_TRUNC,
                                 reinterpret_cast<sockaddr*>(&source), &length);
    if (size < 0) return;
    if (size != sizeof message || message.job != job_) continue;
    if (message.rank < 0 || message.rank >= nodes_->ranks()) continue;
    if (nodes_->node_of(message.rank) == here || nodes_->carrier(message.rank, here) != rank_) continue;
    PhaseTable::Snapshot row;
    row.phase = message.phase;
    row.terminated = message.terminated;
    row.heartbeat = message.heartbeat;
    row.meeting = message.meeting;
    row.last.kind = message.kind;
    row.last.count = message.count;
    std::memcpy(row.last.site, message.site, sizeof message.site);
    row.position = message.position;
    // Datagrams may overtake each other, and may arrive twice, by two routes.
    if (row.heartbeat >= table.read(message.rank).heartbeat) table.write(message.rank, row);
    socket_->heard_from[static_cast<std::size_t>(message.rank)] = source.sin_addr.s_addr;
    if (message.reported) (void)table.claim_report();
    note_open_line(table, message);
  }
}

bool Heartbeats::was_refused(int rank) const {
  return std::any_of(socket_->targets.begin(), socket_->targets.end(),
                     [&](const Socket::Target& target) { return target.rank == rank && target.refused; });
}

bool Heartbeats::host_answers(int rank) const {
  const Address& there = addresses_[static_cast<std::size_t>(rank)];
  std::vector<Descriptor> knocks;
  for (const std::uint32_t host : there.hosts) {
    // An address that both hosts have, such as that of a container bridge, would lead to ourselves.
    const bool ours = std::find(address_.hosts.begin(), address_.hosts.end(), host) != address_.hosts.end();
    if (host != 0 && !ours) knocks.push_back(knock(host, there.port));
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{300};
  while (!knocks.empty() && std::chrono::steady_clock::now() < deadline) {
    for (auto each = knocks.begin(); each != knocks.end();) {
      pollfd wait{each->get(), POLLOUT, 0};
      const bool over = ::poll(&wait, 1, 10) > 0;
      if (over && was_answered(each->get())) return true;
      each = over ? knocks.erase(each) : each + 1;
    }
  }
  return false;
}

bool Heartbeats::heard_all(const PhaseTable& table) const {
  const int here = nodes_->node_of(rank_);
  for (int rank = 0; rank < nodes_->ranks(); ++rank)
    if (nodes_->node_of(rank) != here && nodes_->carrier(rank, here) == rank_ &&
        table.read(rank).phase == Phase::absent)
      return false;
  return true;
}

}  // namespace lockstep
