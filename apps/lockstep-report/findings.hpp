// What a reader should know first about a run, in sentences.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep-report/run.hpp"

namespace lockstep::report {

/// Failures, ranks and hosts that the others waited for, time that went elsewhere than into steps, and losses that are
/// wrong; the gravest first. Empty if nothing stands out.
std::vector<std::string> findings_of(const Run& run);

/// What can be said of several runs that differ in nothing that they have recorded. Both may be empty.
struct Sameness {
  std::string known;    ///< "They have the same options and versions."
  std::string unknown;  ///< "Not known: whether they have the same data, which run1 does not record."
};
Sameness sameness_of(const std::vector<Run>& runs);

}  // namespace lockstep::report
