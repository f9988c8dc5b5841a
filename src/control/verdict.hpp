// From the tags of all ranks to one sentence that says which rank is where. Pure: every rank reaches the same verdict
// from the same input.
#pragma once

#include <exception>
#include <span>
#include <string>

#include <lockstep/base/error.hpp>

#include "control/tag.hpp"

namespace lockstep {

struct Verdict {
  int rank = 0;  ///< the rank to blame, or the lowest of several
  Error::ExitCode code =
      Error::ExitCode::mismatch;      ///< mismatch, replicas_differ, or that of the failing rank's exception
  bool failed = false;                ///< whether `rank` announced a failure; if not, the ranks disagree
  std::string sentence;               ///< "replica 2 (worker:2, host b) has finished step 5; replicas 0, 1 are at …"
  std::exception_ptr exception = {};  ///< what every rank throws if they disagree; a MismatchError if null
};

/// `tags[r]` is rank r's, `names[r]` is "replica r (task, host h)". At least two tags are of different places, or one
/// is an error.
///
/// The lowest rank that announced a failure is to blame; without one, the smallest group of ranks at the same place. Of
/// two equally small groups, it is the one that left early (its step or the job is over), else the one without rank 0.
Verdict judge_tags(std::span<const Tag> tags, std::span<const std::string> names);

}  // namespace lockstep
