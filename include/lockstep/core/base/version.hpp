// Which lockstep this is.
#pragma once

#include <string>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

/// LOCAL, from any thread, also before the runtime. What a report of a fault should quote, as lines: the version, the
/// commit, and the MPI, oneDNN and CUDA that lockstep was built with. The first is "lockstep 0.2.0", and a part that is
/// missing says "none".
LOCKSTEP_API std::string version();

}  // namespace lockstep
