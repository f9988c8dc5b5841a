// A failure that all ranks of a group know of, with the same words.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/base/error.hpp>

#include "control/tag.hpp"

namespace lockstep {

struct Members;
struct Verdict;

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
