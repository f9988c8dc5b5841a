#include "core/watch/network.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include "core/base/host_name.hpp"
#include "core/base/printable.hpp"
#include "core/base/system_error.hpp"

namespace lockstep {

bool Network::has(std::uint32_t host) const {
  const std::uint32_t mask = prefix == 0 ? 0 : ~std::uint32_t{0} << (32 - prefix);
  return ((ntohl(host) ^ ntohl(address)) & mask) == 0;
}

std::optional<Network> parse_network(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  Network network;
  in_addr address = {};
  if (::inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1) return std::nullopt;
  network.address = address.s_addr;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data() + slash + 1, end, network.prefix);
  if (error != std::errc{} || read != end || network.prefix < 0 || network.prefix > 32) return std::nullopt;
  return network;
}

std::vector<HostAddress> host_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw heartbeat_error("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned{first, ::freeifaddrs};
  std::vector<HostAddress> found;
  for (const ifaddrs* each = first; each; each = each->ifa_next) {
    if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET || !(each->ifa_flags & IFF_UP)) continue;
    sockaddr_in address;
    std::memcpy(&address, each->ifa_addr, sizeof address);
    found.push_back({each->ifa_name, address.sin_addr.s_addr});
  }
  return found;
}

std::vector<HostAddress> named_addresses(std::span<const HostAddress> all, std::string_view list) {
  std::vector<HostAddress> named;
  while (!list.empty()) {
    const std::string item{list.substr(0, list.find(','))};
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    const auto network = parse_network(item);
    std::ranges::copy_if(all, std::back_inserter(named), [&](const HostAddress& each) {
      return network ? network->has(each.address) : each.interface == item;
    });
  }
  return named;
}

std::uint32_t address_for_heartbeats(const std::string& network) {
  const char* const of_mpi = std::getenv("OMPI_MCA_btl_tcp_if_include");
  if (network.empty() && !of_mpi) return 0;
  const std::vector<HostAddress> all = host_addresses();
  if (network.empty()) {
    // Open MPI itself complains if this host has none of them.
    const auto named = named_addresses(all, of_mpi);
    return named.empty() ? 0 : named.front().address;
  }
  if (!parse_network(network))
    throw ConfigError{fmt::format("--network {}: expected an IPv4 network such as 10.77.0.0/24", printable(network))};
  const auto named = named_addresses(all, network);
  if (!named.empty()) return named.front().address;
  std::vector<std::string> texts;
  for (const HostAddress& each : all) texts.push_back(to_text(each.address));
  throw ConfigError{fmt::format("--network {}: host {} has no address there; it has {}", network, host_name(),
                                texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", ")))};
}

std::string to_text(std::uint32_t address) {
  char text[INET_ADDRSTRLEN] = "";
  const in_addr whole{address};
  return ::inet_ntop(AF_INET, &whole, text, sizeof text) ? text : "";
}

sockaddr_in socket_address(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  address.sin_port = port;
  return address;
}

CommError heartbeat_error(const char* call) {
  return CommError{fmt::format("heartbeats between nodes: {}: {}", call, error_text(errno))};
}

std::uint16_t bind_socket(const Descriptor& socket, std::uint32_t host) {
  if (socket.get() < 0) throw heartbeat_error("socket");
  sockaddr_in address = socket_address(host, 0);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), any, length) != 0) throw heartbeat_error("bind");
  if (::getsockname(socket.get(), any, &length) != 0) throw heartbeat_error("getsockname");
  return address.sin_port;
}

Descriptor start_connection(std::uint32_t host, std::uint16_t port) {
  Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const sockaddr_in target = socket_address(host, port);
  errno = 0;
  (void)::connect(socket.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target);
  return socket;
}

int error_of_connection(const Descriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : -1;
}

}  // namespace lockstep
