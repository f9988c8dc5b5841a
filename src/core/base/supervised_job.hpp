// What lockstep-run and the jobs that it starts tell each other.
#pragma once

#include <string_view>

namespace lockstep {

/// The environment variable that lockstep-run sets for its jobs.
inline constexpr const char* supervised_variable = "LOCKSTEP_SUPERVISED";

/// The line that the chief of such a job writes to stderr as soon as all ranks have met. lockstep-run waits for it, and
/// keeps it to itself.
inline constexpr std::string_view begun_line = "lockstep: the job has begun";

}  // namespace lockstep
