// From the tags of all ranks to one sentence that says which rank is where, and to a failure that all of them know of.
// Pure: every rank reaches the same verdict from the same input.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/core/base/error.hpp>

#include "core/control/members.hpp"
#include "core/control/tag.hpp"

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

struct AgreedFailure {
  std::exception_ptr exception;                     ///< what this rank throws
  int rank = 0;                                     ///< the rank to blame, as the job counts it
  Error::ExitCode code = Error::ExitCode::failure;  ///< the job's exit code; the same on every rank
  std::string line = {};                            ///< for stderr, once per job; the same on every rank
  bool is_first = true;                             ///< this rank is the first of those that know
};

/// The failure that follows from a verdict on `tags`. `own` is what this rank failed with, if it did. `text` is all
/// that the rank to blame says where it has failed; its tag may hold only a part.
AgreedFailure agreed_failure(const Verdict& verdict, std::span<const Tag> tags, std::span<const std::string> names,
                             const Members& members, int rank, const std::exception_ptr& own, std::string_view text);

/// How much of such a text is sent, where the tag cannot hold it.
std::size_t longer_text(const Verdict& verdict, std::span<const Tag> tags);

/// For the end of a line about a rank that failed, or about all of them.
std::string told_place(const Tag& culprit, bool all_failed);

}  // namespace lockstep
