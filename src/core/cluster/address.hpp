// Addresses of tasks: host:port.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// The normal form that all spellings of an address share: host names in lower case, IPv6 in its shortest form. Empty
/// unless `text` is host:port, where the host is a name, an IPv4 address or a bracketed IPv6 address, and the port is 1
/// to 65535 in plain decimal digits. Looks nothing up.
std::optional<std::string> normalised_address(std::string_view text);

}  // namespace lockstep
