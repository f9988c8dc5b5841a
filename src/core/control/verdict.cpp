#include "core/control/verdict.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/hex.hpp>

#include "core/base/exit_code.hpp"
#include "core/control/names.hpp"

namespace lockstep {
namespace {

/// What the sentence says of a tag besides its kind, place and site: only what distinguishes it from one that reads
/// alike, and what ranks compute that compute different things.
struct Details {
  bool strategy = false, run = false, depth = false, text = false;
};

/// Ranks at the same place, ascending.
struct Group {
  Tag tag;
  std::vector<int> ranks;
  Details details;

  bool left_early() const { return tag.kind == TagKind::close || tag.kind == TagKind::leave; }
};

std::vector<Group> group_by_place(std::span<const Tag> tags) {
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < tags.size(); ++rank) {
    const std::uint64_t place = tags[rank].place();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.tag.place() == place; });
    if (group == groups.end()) group = groups.insert(group, {tags[rank], {}, {}});
    group->ranks.push_back(static_cast<int>(rank));
  }
  return groups;
}

/// Whether `a` is to blame rather than `b`.
bool blamed_before(const Group& a, const Group& b) {
  if (a.ranks.size() != b.ranks.size()) return a.ranks.size() < b.ranks.size();
  if (a.left_early() != b.left_early()) return a.left_early();
  return a.ranks.front() > b.ranks.front();
}

/// Whether the tag's text describes what the ranks compute together.
bool has_operands(const Tag& tag) {
  return tag.kind == TagKind::merge || tag.kind == TagKind::reduce || tag.kind == TagKind::request;
}

/// The name at the beginning of the tag's text, if it is that of a method that is a merge_call or a reduction inside.
/// "read" stands for read_var and read_vars too.
std::string_view method_of(const Tag& tag) {
  static constexpr std::string_view methods[] = {"all_reduce", "all_reduce_async", "gradient of all_reduce",
                                                 "all_gather", "broadcast",        "reduce",
                                                 "reduce_to",  "batch_reduce_to",  "read"};
  if (!has_operands(tag)) return {};
  const std::string_view text = tag.kept_text();
  if (tag.kind == TagKind::request) {
    return text.substr(0, text.find(": "));
  }
  for (const std::string_view method : methods)
    if (text.starts_with(method) && text.size() > method.size() &&
        (text[method.size()] == ':' || text[method.size()] == ' '))
      return method;
  return {};
}

/// The part of the text that was kept, without the method; if that is not all, also enough to distinguish it from one
/// that begins alike.
std::string shown_text(const Tag& tag) {
  if (tag.text_size == 0) return "nothing";
  std::string_view kept = tag.kept_text();
  if (const std::string_view method = method_of(tag); !method.empty()) {
    kept.remove_prefix(method.size());
    kept.remove_prefix(std::min(kept.find_first_not_of(": "), kept.size()));
  }
  if (tag.text_size <= Tag::text_capacity) return std::string{kept};
  return fmt::format("{}... ({} bytes, digest {})", kept, tag.text_size, to_hex(tag.text_digest));
}

/// "merge_call #5 (trainer.cpp:120)", "all_reduce #5 (trainer.cpp:120)".
std::string call_of(const Tag& tag) {
  const std::string_view method = method_of(tag);
  if (method.empty()) return describe(tag);
  return fmt::format("{} #{}{}", method, tag.count, bracketed(tag.site_text()));
}

/// Whether places alone would not say who made the right one of two calls.
bool compute_differently(const Tag& a, const Tag& b) {
  return has_operands(a) && has_operands(b) && !(method_of(a).empty() && method_of(b).empty()) &&
         a.text_digest != b.text_digest;
}

/// "is at merge_call #5 (trainer.cpp:120)", about `ranks` ranks.
std::string act(const Tag& tag, std::size_t ranks) {
  const bool one = ranks == 1;
  const std::string_view be = one ? "is" : "are", have = one ? "has" : "have";
  if (tag.kind == TagKind::close) return fmt::format("{} finished {}", have, name_of_run(tag.run_kind, tag.step));
  if (tag.kind == TagKind::leave) return fmt::format("{} finished the job", have);
  if (tag.kind == TagKind::start) return fmt::format("started with {}", shown_text(tag));
  if (tag.kind == TagKind::create) return fmt::format("{} creating {} ({})", be, shown_text(tag), tag.site_text());
  const std::string in_run = tag.where == Position::Where::in_run ? " in " + name_of_run(tag.run_kind, tag.step) : "";
  return fmt::format("{} at {}{}", be, call_of(tag), in_run);
}

void tell_apart(std::vector<Group>& groups) {
  for (Group& a : groups) {
    for (const Group& b : groups) {
      a.details.text |= compute_differently(a.tag, b.tag);
      if (act(a.tag, 1) != act(b.tag, 1)) continue;
      a.details.strategy |= a.tag.strategy != b.tag.strategy;
      a.details.run |= a.tag.run != b.tag.run;
      a.details.depth |= a.tag.depth != b.tag.depth;
      a.details.text |= a.tag.text_digest != b.tag.text_digest;
    }
  }
}

/// "is at merge_call #5 (trainer.cpp:120) with f32 tensor", "has finished step 5 and returned [2 f32]".
std::string predicate(const Group& group) {
  const Tag& tag = group.tag;
  std::string text = act(tag, group.ranks.size());
  if (group.details.strategy) text += fmt::format(" of strategy {}", tag.strategy);
  if (group.details.run) text += fmt::format(" of run {}", tag.run);
  if (group.details.depth && tag.depth == 0) text += " outside of run()";
  if (group.details.depth && tag.depth == 1) text += " inside of run()";
  if (tag.depth > 1) text += fmt::format(" nested {} deep", tag.depth);
  const std::string_view to_text = tag.kind == TagKind::close ? "and returned" : "with";
  const bool is_named_whole = tag.text_size > 0 && method_of(tag).size() == tag.text_size;  // "barrier"
  if (group.details.text && !is_named_whole) text += fmt::format(" {} {}", to_text, shown_text(tag));
  return text;
}

std::string subject(const Group& group, std::span<const std::string> names) {
  const auto first = static_cast<std::size_t>(group.ranks.front());
  if (group.ranks.size() == 1) return names[first];
  return fmt::format("replicas {}", detail::numbers_of(group.ranks, names));
}

/// A whole job fails with one code. If only some ranks failed, the others have a failed peer, unless the failure has a
/// code of its own. If all failed alike, only the program is to blame.
Error::ExitCode job_code(Error::ExitCode cause, bool all_failed) {
  return cause == Error::ExitCode::failure && !all_failed ? Error::ExitCode::peer_failed : cause;
}

}  // namespace

Verdict judge_tags(std::span<const Tag> tags, std::span<const std::string> names) {
  for (std::size_t rank = 0; rank < tags.size(); ++rank) {
    const Tag& tag = tags[rank];
    if (tag.kind == TagKind::error)
      return {static_cast<int>(rank), tag.cause, true, fmt::format("{} failed: {}", names[rank], tag.kept_text())};
    // A process that ends by itself says how.
    if (tag.kind == TagKind::leave && tag.text_size > 0)
      return {static_cast<int>(rank), tag.cause, true, fmt::format("{} {}", names[rank], tag.kept_text())};
  }

  std::vector<Group> groups = group_by_place(tags);
  tell_apart(groups);
  std::sort(groups.begin(), groups.end(), blamed_before);
  const Group& blamed = groups.front();
  const auto rank = static_cast<std::size_t>(blamed.ranks.front());

  // The sentence begins with the full name of the rank to blame, even if that is one of a group.
  std::string sentence = detail::named_by_first(blamed.ranks, names) + ' ' + predicate(blamed);
  for (std::size_t g = 1; g < groups.size(); ++g)
    sentence += fmt::format("; {} {}", subject(groups[g], names), predicate(groups[g]));
  const auto finished =
      std::count_if(groups.begin(), groups.end(), [](const Group& group) { return group.tag.kind == TagKind::close; });
  if (finished > 0 && static_cast<std::size_t>(finished) < groups.size())
    sentence += ": some replicas made a different number of collective calls";
  return {static_cast<int>(rank), Error::ExitCode::mismatch, false, std::move(sentence)};
}

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
  const std::string place = culprit.use_of_site == Tag::Site::told ? told_place(culprit, all_failed) : "";
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
