#include "core/base/excerpt.hpp"

#include <algorithm>
#include <cstddef>

#include "core/base/printable.hpp"

namespace lockstep {
namespace {

constexpr std::size_t most_characters = 200;

bool is_inside_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace

std::string excerpt(std::string_view text) {
  std::string shown;
  std::size_t characters = 0;
  while (!text.empty()) {
    const std::size_t bytes = text.front() == '\n' || text.front() == '\t' ? 0 : character_bytes(text);
    const std::string next = bytes == 0 ? escaped(text.front()) : std::string{text.substr(0, bytes)};
    characters += bytes == 0 ? next.size() : 1;
    if (characters > most_characters) return shown + "…";
    shown += next;
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return shown;
}

std::string excerpt_from_difference(std::string_view text, std::string_view other) {
  constexpr std::ptrdiff_t before = 40;
  const std::ptrdiff_t difference = std::ranges::mismatch(text, other).in1 - text.begin();
  if (text.size() <= most_characters || difference <= before) return excerpt(text);
  std::string_view rest = text.substr(static_cast<std::size_t>(difference - before));
  while (!rest.empty() && is_inside_character(rest.front())) rest.remove_prefix(1);
  return "…" + excerpt(rest);
}

}  // namespace lockstep
