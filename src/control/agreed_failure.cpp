#include "control/agreed_failure.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "base/exit_code.hpp"
#include "control/exceptions.hpp"
#include "control/members.hpp"
#include "control/tag_text.hpp"
#include "control/verdict.hpp"

namespace lockstep {
namespace {

/// A whole job fails with one code. If only some ranks failed, the others have a failed peer, unless the failure has a
/// code of its own. If all failed alike, only the program is to blame.
Error::ExitCode job_code(Error::ExitCode cause, bool all_failed) {
  return cause == Error::ExitCode::failure && !all_failed ? Error::ExitCode::peer_failed : cause;
}

}  // namespace

std::string told_place(const Tag& culprit, bool all_failed) {
  return fmt::format("; {} {}", all_failed ? "this was" : "it was", place_of_failure(culprit));
}

std::size_t longer_text(const Verdict& verdict, std::span<const Tag> tags) {
  constexpr std::uint64_t longest = 4096;
  const std::uint64_t size = tags[static_cast<std::size_t>(verdict.rank)].text_size;
  return verdict.failed && size > Tag::text_capacity ? static_cast<std::size_t>(std::min(size, longest)) : 0;
}

AgreedFailure agreed_failure(const Verdict& verdict, std::span<const Tag> tags, std::span<const std::string> names,
                             const Members& members, int rank, const std::exception_ptr& own, std::string_view text) {
  const auto blamed = static_cast<std::size_t>(verdict.rank);
  AgreedFailure failure{own, members.ranks.empty() ? verdict.rank : members.ranks[blamed], verdict.code};
  failure.is_first = rank == 0;
  if (!verdict.failed) {
    failure.line = fmt::format("lockstep: {}", verdict.sentence);
    failure.exception =
        verdict.exception ? verdict.exception : std::make_exception_ptr(MismatchError{verdict.sentence});
    return failure;
  }
  const Tag& culprit = tags[blamed];
  const bool has_left = culprit.kind == TagKind::leave;
  const std::string sentence = fmt::format("{} {}{}", names[blamed], has_left ? "" : "failed: ", text);
  const bool all_failed = std::ranges::all_of(tags, [](const Tag& tag) { return tag.kind == TagKind::error; });
  if (!has_left) failure.code = job_code(verdict.code, all_failed);
  const std::string place = culprit.tells_place ? told_place(culprit, all_failed) : "";
  failure.line = fmt::format("lockstep: {}{}", sentence, place);
  if (all_failed || (is_about_input(failure.code) && !has_left))
    // All ranks that stop early have not failed.
    failure.line =
        fmt::format("lockstep: {}{}{}", failure.code == Error::ExitCode::stopped ? "" : "error: ", text, place);
  // The failing rank rethrows its own exception; if several failed, each rethrows its own.
  if (!own) failure.exception = std::make_exception_ptr(PeerError{verdict.rank, sentence, verdict.code});
  return failure;
}

}  // namespace lockstep
