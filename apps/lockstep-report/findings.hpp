// What a reader should know first about a run, in sentences.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep-report/run.hpp"

namespace lockstep::report {

/// Failures, ranks and hosts that the others waited for, time that went elsewhere than into steps, and losses that are
/// wrong; the gravest first. Empty if nothing stands out.
std::vector<std::string> findings_of(const Run& run);

}  // namespace lockstep::report
