#include "core/base/abstract_socket.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/un.h>
#include <unistd.h>

namespace lockstep {

Descriptor make_local_socket() {
  return Descriptor{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

bool with_abstract_address(std::string_view name, const std::function<int(const sockaddr*, socklen_t)>& call) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // The zero byte that begins such a name is already there.
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data() + name.size() - length, length);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return call(reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

bool is_peer_of_this_user(const Descriptor& socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

std::string name_of_parent() {
  std::error_code without;
  return fmt::format("{} of {}", ::getppid(), std::filesystem::read_symlink("/proc/self/ns/pid", without).string());
}

}  // namespace lockstep
