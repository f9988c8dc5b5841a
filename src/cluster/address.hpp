// Addresses of tasks: host:port.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// What two spellings of the same address have in common (host names in lower case, IPv6 in its shortest
/// form). None if `text` is not host:port, with a host name, an IPv4 address or an IPv6 address in brackets,
/// and a port from 1 to 65535 in plain decimal digits. Looks nothing up.
std::optional<std::string> normalised_address(std::string_view text);

}  // namespace lockstep
