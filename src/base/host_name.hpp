// What this host calls itself.
#pragma once

#include <string>

namespace lockstep {

/// The name of this host, or "unknown".
std::string host_name();

}  // namespace lockstep
