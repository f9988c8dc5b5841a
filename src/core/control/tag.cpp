#include "core/control/tag.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>
#include <type_traits>

#include <fmt/format.h>

#include "core/base/digest.hpp"
#include "core/base/printable.hpp"
#include "core/base/site.hpp"

namespace lockstep {
namespace {

template <std::size_t capacity>
std::string_view fixed_text(const char (&text)[capacity]) {
  return {text, ::strnlen(text, capacity)};
}

bool is_control(unsigned char c) {
  return c < 0x20 || c == 0x7f;
}

/// At most `capacity` bytes of `text`; a multi-byte character (UTF-8) is kept whole or not at all.
std::string_view cut(std::string_view text, std::size_t capacity) {
  std::size_t end = std::min(text.size(), capacity);
  const auto inside_character = [&] { return (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80; };
  while (end > 0 && end < text.size() && inside_character()) --end;
  return text.substr(0, end);
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line{text};
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return printable(line);
}

void Tag::set_site(const Here& here) {
  std::memset(site, 0, sizeof site);
  std::string_view file = file_of(here);
  if (file.empty()) return;
  char line[16] = ":";
  const char* const end = here.line() == 0 ? line : std::to_chars(line + 1, line + sizeof line, here.line()).ptr;
  const std::string_view number{line, static_cast<std::size_t>(end - line)};
  file = cut(file, sizeof site - number.size());
  std::copy(number.begin(), number.end(), std::copy(file.begin(), file.end(), site));
}

void Tag::set_text(std::string_view full) {
  text_digest = full.empty() ? 0 : digest_of(full);
  text_size = full.size();
  keep_text(full, text);
}

void keep_text(std::string_view text, std::span<char> kept) {
  std::ranges::fill(kept, '\0');
  const std::string_view fits = cut(text, kept.size());
  std::replace_copy_if(fits.begin(), fits.end(), kept.begin(), is_control, ' ');
}

std::string_view TagName::site_text() const {
  return fixed_text(site);
}
std::string_view Tag::site_text() const {
  return fixed_text(site);
}
std::string_view Tag::kept_text() const {
  return fixed_text(text);
}

Tag::operator TagName() const {
  TagName name{.kind = kind, .count = count};
  std::memcpy(name.site, site, sizeof site);
  return name;
}

std::uint64_t Tag::digest() const {
  static_assert(std::has_unique_object_representations_v<Tag>, "padding would put chance into the digest");
  // The text is in its own digest already.
  const bool compares_site = kind == TagKind::error || use_of_site == Site::compared;
  const std::size_t first = offsetof(Tag, kind), last = compares_site ? offsetof(Tag, text) : offsetof(Tag, site);
  return digest_of(std::as_bytes(std::span{this, 1}).subspan(first, last - first)) & ~std::uint64_t{1};
}

std::uint64_t Tag::place() const {
  Tag tag = *this;
  tag.compared = compared == 0 ? 0 : 1;
  return tag.digest();
}

std::string bracketed(std::string_view site) {
  return site.empty() ? "" : fmt::format(" ({})", site);
}

std::string describe(const TagName& tag) {
  const std::string at = bracketed(tag.site_text());
  const auto call = [&](std::string_view name) { return fmt::format("{} #{}{}", name, tag.count, at); };
  switch (tag.kind) {
    case TagKind::start: return "the start of the job";
    case TagKind::create: return "the creation of a variable" + at;
    case TagKind::seal: return "the sealing of the variables" + at;
    case TagKind::compare: return call("same_on_all");
    case TagKind::input: return call("input");
    case TagKind::steps: return call("run_steps_on_iterator");
    case TagKind::attest: return call("attest");
    case TagKind::save: return call("save_checkpoint");
    case TagKind::restore: return call("restore_checkpoint");
    case TagKind::reduce: return call("reduction");
    case TagKind::broadcast: return call("broadcast");
    case TagKind::chief: return "the end of the chief's work" + at;
    case TagKind::merge: return call("merge_call");
    case TagKind::request: return call("request");
    case TagKind::group: return "the making of a group" + at;
    case TagKind::agree: return call("agree");
    case TagKind::sum: return fmt::format("sum #{} of the step{}", tag.count, at);
    case TagKind::open_sum: return "the sum of all_reduce_async" + at;
    case TagKind::close: return "the end of the step";
    case TagKind::error: return "a failure";
    case TagKind::leave: return "the end of the job";
  }
  return "?";
}

std::string name_of_run(detail::RunKind kind, std::uint64_t step) {
  switch (kind) {
    case detail::RunKind::step: return fmt::format("step {}", step);
    case detail::RunKind::evaluation: return fmt::format("the evaluation after step {}", step);
    case detail::RunKind::setup: return "the setup";
    case detail::RunKind::sample: return step > 0 ? fmt::format("the sample after step {}", step) : "the sample";
    case detail::RunKind::prediction: return "the prediction";
  }
  return "?";
}

std::string describe(Position::Where where, detail::RunKind kind, std::uint64_t step) {
  switch (where) {
    case Position::Where::before_runs: return "before the first step";
    case Position::Where::in_run: return "in " + name_of_run(kind, step);
    case Position::Where::after_run: return "after " + name_of_run(kind, step);
    case Position::Where::in_phase: return {};
  }
  return "?";
}

bool is_call(TagKind kind) {
  constexpr std::array others{TagKind::start, TagKind::close,    TagKind::error,
                              TagKind::sum,   TagKind::open_sum, TagKind::leave};
  return std::ranges::find(others, kind) == others.end();
}

std::string place_of_failure(const Tag& tag) {
  const std::string where = describe(tag.where, tag.run_kind, tag.step);
  const std::string text = where + (where.empty() ? "computing" : ", computing");
  if (tag.after == TagKind::error) return text + bracketed(tag.site_text());
  TagName last = tag;
  last.kind = tag.after;
  return fmt::format("{} after {}", text, describe(last));
}

}  // namespace lockstep
