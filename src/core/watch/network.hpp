// Which of a host's IPv4 addresses heartbeats use. Addresses are in network byte order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <netinet/in.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/descriptor.hpp"

namespace lockstep {

/// The addresses whose first `prefix` bits are those of `address`.
struct Network {
  std::uint32_t address = 0;
  int prefix = 0;

  bool has(std::uint32_t host) const;
};

/// Reads "10.77.0.0/24"; nothing if the text is no such thing.
std::optional<Network> parse_network(const std::string& text);

struct HostAddress {
  std::string interface;
  std::uint32_t address = 0;
};

/// This host's addresses that are up, also loopback's.
std::vector<HostAddress> host_addresses();

/// Those that `list` names, by networks and interfaces, "10.77.0.0/24,eth0", in the order of the list.
std::vector<HostAddress> named_addresses(std::span<const HostAddress> all, std::string_view list);

/// The address of this host to which heartbeats are to be bound: one in `network`, or if that is empty, one that Open
/// MPI is told to use (btl_tcp_if_include), or else 0 for any. ConfigError if `network` is no network, or if this host
/// has no address in it.
std::uint32_t address_for_heartbeats(const std::string& network);

/// "10.77.0.1".
std::string to_text(std::uint32_t address);

/// For the system's calls. `port` is in network byte order.
sockaddr_in socket_address(std::uint32_t host, std::uint16_t port);

/// What errno says of a call for heartbeats.
CommError heartbeat_error(const char* call);

/// Binds a new socket to a port that the system chooses, which is returned. CommError if the system refuses either.
std::uint16_t bind_socket(const Descriptor& socket, std::uint32_t host);

/// Starts a TCP connection, and does not wait for it. errno says if it has failed already.
Descriptor start_connection(std::uint32_t host, std::uint16_t port);

/// What has become of it, as errno does; -1 if the system does not say.
int error_of_connection(const Descriptor& socket);

}  // namespace lockstep
