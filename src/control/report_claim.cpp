#include "control/report_claim.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/descriptor.hpp"

namespace lockstep {
namespace {

/// The job's name, from its launcher; none if the launcher sets none.
std::optional<std::string> name_of_claim() {
  const char* const job = std::getenv("PMIX_NAMESPACE");
  if (!job || !*job) return std::nullopt;
  return fmt::format("lockstep report {} {}", job, ::getppid());
}

/// Calls bind or connect with the address for that name.
template <class Call>
bool with_address(const std::string& name, Call&& call) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // The zero byte that begins such a name is already there.
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return call(reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

Descriptor make_socket() {
  return Descriptor{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
}

}  // namespace

bool claim_report(PhaseTable* table) {
  if (table && !table->claim_report()) return false;
  const auto name = name_of_claim();
  if (!name) return true;
  static Descriptor claim;  // held as long as the process lives
  Descriptor socket = make_socket();
  if (socket.get() < 0) return true;  // twice rather than not at all
  const bool mine =
      with_address(*name, [&](const sockaddr* address, socklen_t size) { return ::bind(socket.get(), address, size); });
  if (mine) claim = std::move(socket);
  return mine;
}

bool report_is_claimed() {
  const auto name = name_of_claim();
  if (!name) return false;
  const Descriptor socket = make_socket();
  return with_address(*name,
                      [&](const sockaddr* address, socklen_t size) { return ::connect(socket.get(), address, size); });
}

}  // namespace lockstep
