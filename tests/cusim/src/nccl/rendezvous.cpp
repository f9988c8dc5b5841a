#include "rendezvous.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../core.hpp"

namespace cusim {
namespace {

constexpr char id_begin[] = "cusim-nccl-";

/// Little, so that a large message waits for its receiver.
constexpr int send_buffer_bytes = 48 << 10;

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Socket make_socket() {
  Socket made{::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!made.is_open()) found(fmt::format("no socket for NCCL: {}", std::strerror(errno)));
  return made;
}

void limit_buffer(const Socket& socket) {
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof send_buffer_bytes);
}

/// What NCCL takes for the name of the machine.
std::string host_name() {
  if (const char* const set = std::getenv("NCCL_HOSTID"); set && *set) return set;
  char name[65] = {};
  (void)::gethostname(name, sizeof name - 1);
  return name;
}

bool first_use(const std::string& id, int rank) {
  static std::mutex mutex;
  static auto& used = *new std::set<std::pair<std::string, int>>;
  const std::lock_guard lock{mutex};
  return used.emplace(id, rank).second;
}

}  // namespace

void make_unique_id(ncclUniqueId& id) {
  std::uint64_t random[2] = {};
  if (::getrandom(random, sizeof random, 0) != sizeof random) found("no random numbers for an ncclUniqueId");
  std::fill(std::begin(id.internal), std::end(id.internal), '\xa5');
  const std::string name = fmt::format("{}{:016x}{:016x}", id_begin, random[0], random[1]);
  std::memcpy(id.internal, name.c_str(), name.size() + 1);
}

Rendezvous::Rendezvous(const ncclUniqueId& id, int size, int rank, int device)
    : id_{id.internal, ::strnlen(id.internal, sizeof id.internal)},
      sockets_(static_cast<std::size_t>(size)),
      hellos_(static_cast<std::size_t>(size)),
      known_(static_cast<std::size_t>(size)),
      below_(static_cast<std::size_t>(rank)) {
  constexpr std::size_t length = sizeof id_begin - 1 + 32;
  const bool is_whole =
      std::all_of(id.internal + length + 1, std::end(id.internal), [](char c) { return c == '\xa5'; });
  if (id_.size() != length || !id_.starts_with(id_begin) || !is_whole)
    found("ncclCommInitRank: the ncclUniqueId is none that ncclGetUniqueId made");
  if (!first_use(id_, rank)) found("ncclCommInitRank: this ncclUniqueId has been used before for this rank");
  mine_ = {size, rank, device, {}};
  const std::string host = host_name();
  host.copy(mine_.host, sizeof mine_.host - 1);
  hellos_[static_cast<std::size_t>(rank)] = mine_;
  known_[static_cast<std::size_t>(rank)] = true;
  listen();
}

std::string Rendezvous::name_of(int rank) const {
  return fmt::format("{}-{}", id_, rank);
}

void Rendezvous::listen() {
  listener_ = make_socket();
  const Address address{name_of(mine_.rank)};
  if (::bind(listener_.fd(), address.get(), address.length) != 0 || ::listen(listener_.fd(), mine_.size) != 0)
    found(fmt::format("ncclCommInitRank: two processes are rank {} of one communicator ({})", mine_.rank,
                      std::strerror(errno)));
}

void Rendezvous::connect(int peer) {
  Stranger& to = below_[static_cast<std::size_t>(peer)];
  if (to.socket.is_open() || known_[static_cast<std::size_t>(peer)]) return;
  Socket socket = make_socket();
  const Address address{name_of(peer)};
  if (::connect(socket.fd(), address.get(), address.length) != 0) return;  // it is not there yet
  limit_buffer(socket);
  if (::send(socket.fd(), &mine_, sizeof mine_, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof mine_) return;
  to.socket = std::move(socket);
}

void Rendezvous::accept() {
  for (;;) {
    Socket socket{::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!socket.is_open()) return;
    limit_buffer(socket);
    if (::send(socket.fd(), &mine_, sizeof mine_, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof mine_) continue;
    strangers_.push_back({std::move(socket), {}, 0});
  }
}

/// False if it has gone away.
bool Rendezvous::hear(Stranger& stranger) {
  if (!stranger.socket.is_open()) return true;
  auto* const to = reinterpret_cast<char*>(&stranger.hello) + stranger.received;
  const ssize_t got = ::recv(stranger.socket.fd(), to, sizeof(Hello) - stranger.received, MSG_DONTWAIT);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  stranger.received += static_cast<std::size_t>(got);
  if (stranger.received < sizeof(Hello)) return true;
  if (stranger.hello.size != mine_.size)
    found(fmt::format("ncclCommInitRank: rank {} has {} ranks, and rank {} has {}", mine_.rank, mine_.size,
                      stranger.hello.rank, stranger.hello.size));
  const auto rank = static_cast<std::size_t>(stranger.hello.rank);
  hellos_[rank] = stranger.hello;
  sockets_[rank] = std::move(stranger.socket);
  known_[rank] = true;
  return true;
}

bool Rendezvous::hear_all() {
  bool all_there = true;
  for (auto* const group : {&below_, &strangers_})
    for (Stranger& stranger : *group) all_there = hear(stranger) && all_there;
  return all_there;
}

ncclResult_t Rendezvous::advance() {
  for (int peer = 0; peer < mine_.rank; ++peer) connect(peer);
  accept();
  if (!hear_all()) {
    problem_ = "a rank went away while the communicator was made";
    return ncclRemoteError;
  }
  if (std::find(known_.begin(), known_.end(), false) != known_.end()) return ncclInProgress;
  listener_.close();
  return verdict();
}

ncclResult_t Rendezvous::verdict() {
  for (int b = 0; b < mine_.size && !settings().share_gpus; ++b)
    for (int a = 0; a < b; ++a) {
      const Hello& one = hellos_[static_cast<std::size_t>(a)];
      const Hello& other = hellos_[static_cast<std::size_t>(b)];
      if (one.device != other.device || std::strcmp(one.host, other.host) != 0) continue;
      problem_ = fmt::format("Duplicate GPU detected : rank {} and rank {} both on CUDA device {}", a, b, one.device);
      return ncclInvalidUsage;
    }
  return ncclSuccess;
}

}  // namespace cusim
