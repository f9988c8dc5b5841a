// What hydra, the launcher of MPICH, takes for the life of a rank.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/base/abstract_socket.hpp"
#include "core/base/awake_clock.hpp"
#include "core/base/descriptor.hpp"
#include "core/cluster/launch.hpp"
#include "job/runtime/launcher.hpp"
#include "job/runtime/siblings.hpp"

namespace lockstep {
namespace {

constexpr std::chrono::seconds patience{2};

/// stdout, stderr, and the connection to hydra.
using Streams = std::array<int, 3>;

/// Those of this process; nothing if hydra did not start it, or is to be reached in another way.
std::optional<Streams> own_streams() {
  const char* const connection = std::getenv("PMI_FD");
  if (nearest_launcher() != LauncherKind::pmi || !connection) return std::nullopt;
  return Streams{STDOUT_FILENO, STDERR_FILENO, std::atoi(connection)};
}

/// Where a rank of this job and node receives.
std::string name_of(int rank) {
  return fmt::format("lockstep streams {} {}", rank, name_of_parent());
}

/// A message of one byte that carries descriptors.
struct Message {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Streams))> control = {};
  msghdr header = {};

  Message() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
};

void send(const Streams& streams, int to, AwakeClock::time_point deadline) {
  const Descriptor socket = make_local_socket();
  const auto connects = [&](const sockaddr* address, socklen_t size) { return ::connect(socket.get(), address, size); };
  // The other may not be there yet.
  while (!with_abstract_address(name_of(to), connects)) {
    if (AwakeClock::now() > deadline) return;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  if (!is_peer_of_this_user(socket)) return;
  Message message;
  cmsghdr* const part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(part), streams.data(), sizeof streams);
  (void)!::sendmsg(socket.get(), &message.header, MSG_NOSIGNAL);
}

/// Receives descriptors, which stay open until this process ends.
void receive(const Descriptor& listener, AwakeClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - AwakeClock::now());
  pollfd wait{listener.get(), POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(std::max(left, std::chrono::milliseconds{0}).count())) <= 0) return;
  const Descriptor connection{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  if (connection.get() < 0 || !is_peer_of_this_user(connection)) return;
  const timeval most{.tv_sec = 1, .tv_usec = 0};
  (void)::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  Message message;
  (void)!::recvmsg(connection.get(), &message.header, MSG_CMSG_CLOEXEC | MSG_WAITALL);
}

}  // namespace

void keep_streams_of_neighbour() {
  const auto streams = own_streams();
  if (!streams) return;
  const auto all = look_at_siblings().processes;
  const auto own = std::ranges::find(all, ::getpid(), &SiblingView::Process::id);
  if (all.size() < 2 || own == all.end()) return;
  const auto deadline = AwakeClock::now() + patience;
  const Descriptor listener = make_local_socket();
  const auto binds = [&](const sockaddr* address, socklen_t size) { return ::bind(listener.get(), address, size); };
  if (!with_abstract_address(name_of(own->rank), binds) || ::listen(listener.get(), 1) != 0) return;
  send(*streams, own + 1 == all.end() ? all.front().rank : (own + 1)->rank, deadline);
  receive(listener, deadline);
}

}  // namespace lockstep
