#include "models/input/schema_names.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/excerpt.hpp"
#include "core/base/printable.hpp"

namespace lockstep {

std::vector<std::string> number_names(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t number = 0; number < count; ++number) names.push_back(std::to_string(number));
  return names;
}

bool are_number_names(const std::vector<std::string>& names) {
  return names == number_names(std::ssize(names));
}

std::string as_utf8(std::string_view text) {
  if (printable(text) == text) return std::string{text};
  std::string converted;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      converted += c;
      continue;
    }
    converted += static_cast<char>(0xc0 | byte >> 6);
    converted += static_cast<char>(0x80 | (byte & 0x3f));
  }
  return converted;
}

std::string quoted(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8, most_characters = 100;
  std::vector<std::string> shown;
  std::size_t characters = 0;
  for (const std::string& name : names) {
    std::string next = fmt::format("\"{}\"", excerpt(name));
    characters += next.size();
    if (shown.size() == most || (characters > most_characters && !shown.empty())) {
      shown.emplace_back("…");
      break;
    }
    shown.push_back(std::move(next));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::optional<Twins> find_twins(const std::vector<std::string>& names) {
  std::unordered_map<std::string, const std::string*> seen;
  for (const std::string& name : names) {
    std::string bare;
    std::ranges::remove_copy_if(name, std::back_inserter(bare),
                                [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; });
    const auto [at, is_new] = seen.emplace(std::move(bare), &name);
    if (!is_new) return Twins{*at->second, name};
  }
  return std::nullopt;
}

}  // namespace lockstep
