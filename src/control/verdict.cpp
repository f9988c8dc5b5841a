#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/control/verdict.hpp>

namespace lockstep {
namespace {

/// Ranks with the same tag, ascending.
struct Group {
  Tag tag;
  std::vector<int> ranks;

  bool left_early() const { return tag.kind == TagKind::close || tag.kind == TagKind::leave; }
};

std::vector<Group> group_by_tag(std::span<const Tag> tags) {
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < tags.size(); ++rank) {
    const std::uint64_t digest = tags[rank].digest();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.tag.digest() == digest; });
    if (group == groups.end()) group = groups.insert(group, {tags[rank], {}});
    group->ranks.push_back(static_cast<int>(rank));
  }
  return groups;
}

/// The group to blame before the others.
bool blamed_before(const Group& a, const Group& b) {
  if (a.ranks.size() != b.ranks.size()) return a.ranks.size() < b.ranks.size();
  if (a.left_early() != b.left_early()) return a.left_early();
  return a.ranks.front() > b.ranks.front();
}

bool same_call(const Tag& a, const Tag& b) {
  return a.kind == b.kind && a.strategy == b.strategy && a.depth == b.depth && a.run == b.run &&
         a.sequence == b.sequence && a.site_text() == b.site_text();
}

/// "is at merge_call #5 (trainer.cpp:120)". `with_text`: the calls are alike, so say what they were called with.
std::string predicate(const Group& group, bool with_text) {
  const bool one = group.ranks.size() == 1;
  const Tag& tag = group.tag;
  const std::string_view be = one ? "is" : "are";
  switch (tag.kind) {
    case TagKind::close: return fmt::format("{} finished the step", one ? "has" : "have");
    case TagKind::leave: return fmt::format("{} finished the job", one ? "has" : "have");
    case TagKind::start: return fmt::format("started with {}", tag.kept_text());
    case TagKind::create: return fmt::format("{} creating {} ({})", be, tag.kept_text(), tag.site_text());
    case TagKind::seal:
    case TagKind::compare:
    case TagKind::reduce:
    case TagKind::merge:
    case TagKind::error: break;
  }
  std::string text = fmt::format("{} at {}", be, describe(tag));
  if (tag.depth > 1) text += fmt::format(" nested {} deep", tag.depth);
  if (with_text) text += fmt::format(" with {}", tag.text_size ? tag.kept_text() : "nothing");
  return text;
}

std::string subject(const Group& group, std::span<const std::string> names) {
  const auto first = static_cast<std::size_t>(group.ranks.front());
  if (group.ranks.size() == 1) return names[first];
  return fmt::format("replicas {}", fmt::join(group.ranks, ", "));
}

}  // namespace

Verdict judge(std::span<const Tag> tags, std::span<const std::string> names) {
  for (std::size_t rank = 0; rank < tags.size(); ++rank)
    if (tags[rank].kind == TagKind::error)
      return {static_cast<int>(rank), tags[rank].cause, true,
              fmt::format("{} failed: {}", names[rank], tags[rank].kept_text())};

  std::vector<Group> groups = group_by_tag(tags);
  std::sort(groups.begin(), groups.end(), blamed_before);
  const Group& blamed = groups.front();
  const auto rank = static_cast<std::size_t>(blamed.ranks.front());

  // The sentence begins with the rank to blame by its full name, even where it is one of a group.
  std::string sentence = names[rank];
  if (blamed.ranks.size() > 1) {
    const std::vector<int> others{blamed.ranks.begin() + 1, blamed.ranks.end()};
    sentence += fmt::format(" and replica{} {}", others.size() > 1 ? "s" : "", fmt::join(others, ", "));
  }
  const bool alike =
      std::all_of(groups.begin(), groups.end(), [&](const Group& group) { return same_call(group.tag, blamed.tag); });
  sentence += ' ' + predicate(blamed, alike);
  for (std::size_t g = 1; g < groups.size(); ++g)
    sentence += fmt::format("; {} {}", subject(groups[g], names), predicate(groups[g], alike));
  if (std::any_of(groups.begin(), groups.end(), [](const Group& g) { return g.tag.kind == TagKind::close; }))
    sentence += ": some replicas made a different number of merge_call() calls";
  return {static_cast<int>(rank), ExitCode::mismatch, false, std::move(sentence)};
}

}  // namespace lockstep
