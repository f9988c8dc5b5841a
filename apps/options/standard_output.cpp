#include "apps/options/standard_output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

namespace lockstep {
namespace {

/// The bytes of the character that `text` begins with; 0 unless they are UTF-8 and no control character.
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

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    if (size == 0)
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    else
      shown += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return shown;
}

void write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error{fmt::format("standard output cannot be written: {}", std::strerror(errno))};
}

void keep_closed_streams_closed() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // The lowest number that is free is this one. It is opened for what it is not used for, so that every use fails.
    if (::fcntl(stream, F_GETFD) < 0) (void)::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace lockstep
