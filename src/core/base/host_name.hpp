// Names of hosts.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The name of this host, or "unknown".
std::string host_name();

/// Whether two names of hosts, or parts of them, are the same: letters may be large or small.
bool same_host_name(std::string_view one, std::string_view other);

}  // namespace lockstep
