// From the tags of all ranks to one sentence that says who is where. Pure: the same input gives every rank the same
// verdict.
#pragma once

#include <exception>
#include <span>
#include <string>

#include <lockstep/base/error.hpp>
#include <lockstep/control/tag.hpp>

namespace lockstep {

struct Verdict {
  int rank = 0;                        ///< to blame, or the lowest of those to blame
  ExitCode code = ExitCode::mismatch;  ///< mismatch, replicas_differ, or what the failing rank's exception stands for
  bool failed = false;                 ///< `rank` announced a failure; else the ranks disagree
  std::string sentence;  ///< "replica 2 (worker:2, host b) has finished the step; replicas 0, 1 are at …"
  std::exception_ptr exception = {};  ///< what every rank throws where they disagree; none: a MismatchError
};

/// `tags[r]` is rank r's, `names[r]` is "replica r (task, host h)". At least two are of different places, or one is an
/// error.
///
/// Who is to blame: the lowest rank that announced a failure; else the smallest group of ranks at the same place. Where
/// two groups are equally small it is the one that left early (its step or the job is over), else the one without
/// rank 0.
Verdict judge(std::span<const Tag> tags, std::span<const std::string> names);

}  // namespace lockstep
