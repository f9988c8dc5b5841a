// The content of a file that announces how much it holds.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "models/input/file_bytes.hpp"

namespace lockstep {

/// What follows after the header of a file.
struct AnnouncedContent {
  std::uint64_t header_bytes = 0;
  std::uint64_t bytes = 0;  ///< after the header
  std::string text;         ///< what they are: "10 images of 28 x 28"
};

/// Reads all of it, in pieces of `piece_bytes`; the last piece may be smaller. The header must have been read.
/// ConfigError, before the first piece if the size of the file tells, if there is less or more than that.
void read_content(FileBytes& file, const AnnouncedContent& content, std::uint64_t piece_bytes,
                  const std::function<void(std::span<const std::uint8_t> piece)>& take);

/// The whole content in memory.
std::vector<std::uint8_t> read_content(FileBytes& file, const AnnouncedContent& content);

}  // namespace lockstep
