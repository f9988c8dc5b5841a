// What the system's error numbers mean to this process.
#pragma once

#include <string>

#include "core/base/parts.hpp"

namespace lockstep {

/// The system's text for the number of an error. If a limit that this process has inherited is behind it, names that:
/// "File too large (this process may make files of 4096 bytes, ulimit -f)".
LOCKSTEP_PARTS_API std::string error_text(int error);

}  // namespace lockstep
