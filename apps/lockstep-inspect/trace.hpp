// The trace of a run, as pictures and in words.
#pragma once

#include <filesystem>

#include "apps/lockstep-inspect/contents.hpp"

namespace lockstep {

/// Makes pictures of the trace in `folder` (write_picture, write_merged_picture), and says of each rank how many spans
/// it has written and what it was doing last. Throws as those do.
Report inspect_trace(const std::filesystem::path& folder);

}  // namespace lockstep
