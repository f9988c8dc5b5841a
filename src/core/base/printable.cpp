#include "core/base/printable.hpp"

#include <fmt/format.h>

namespace lockstep {

std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7f) || first == '\n' || first == '\t' ? 1 : 0;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc0 || first >= 0xf8 || text.size() < size) return 0;
  unsigned code = first & (0x7f >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  // Not in more bytes than needed, no control character of the second kind, no half of a pair, not beyond Unicode.
  constexpr unsigned least[] = {0, 0, 0xa0, 0x800, 0x10000};
  return code >= least[size] && (code < 0xd800 || code > 0xdfff) && code <= 0x10ffff ? size : 0;
}

std::string escaped(char byte) {
  return fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    shown += size == 0 ? escaped(text.front()) : std::string{text.substr(0, size)};
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return shown;
}

}  // namespace lockstep
