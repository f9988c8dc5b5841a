#include "models/input/file_content.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t chunk_bytes = 1 << 20;

std::string announced(const FileBytes& file, const AnnouncedContent& content) {
  return fmt::format("{} bytes{} (a header of {} and {})", content.header_bytes + content.bytes,
                     file.packed() ? " when unpacked" : "", content.header_bytes, content.text);
}

/// `found` bytes, the header among them.
void require_whole(const FileBytes& file, const AnnouncedContent& content, std::uint64_t found,
                   std::string_view at_most = "") {
  if (found < content.header_bytes + content.bytes)
    file.fail(fmt::format("truncated: expected {}, found {}{}", announced(file, content), at_most, found));
}

/// A header that lies costs an error message, not the memory it claims.
void require_possible(const FileBytes& file, const AnnouncedContent& content) {
  require_whole(file, content, file.most_bytes(), file.packed() ? "at most " : "");
}

void require_end(FileBytes& file, const AnnouncedContent& content) {
  std::uint8_t next;
  if (file.read({&next, 1}) != 0)
    file.fail(fmt::format("has trailing bytes: expected {}, found more", announced(file, content)));
}

}  // namespace

void read_content(FileBytes& file, const AnnouncedContent& content, std::uint64_t piece_bytes,
                  const std::function<void(std::span<const std::uint8_t>)>& take) {
  require_possible(file, content);
  std::vector<std::uint8_t> piece(std::min(piece_bytes, content.bytes));
  for (std::uint64_t done = 0; done < content.bytes; done += piece.size()) {
    piece.resize(std::min<std::uint64_t>(piece.size(), content.bytes - done));
    const std::size_t found = file.read(piece);
    if (found < piece.size()) require_whole(file, content, content.header_bytes + done + found);
    take(piece);
  }
  require_end(file, content);
}

std::vector<std::uint8_t> read_content(FileBytes& file, const AnnouncedContent& content) {
  require_possible(file, content);
  std::vector<std::uint8_t> bytes = file.room_for(content.bytes);
  // Piece by piece: packed data may end early.
  while (bytes.size() < content.bytes) {
    const std::size_t before = bytes.size();
    bytes.resize(before + std::min(content.bytes - before, chunk_bytes));
    const std::size_t found = file.read(std::span{bytes}.subspan(before));
    if (found < bytes.size() - before) require_whole(file, content, content.header_bytes + before + found);
  }
  require_end(file, content);
  return bytes;
}

}  // namespace lockstep
