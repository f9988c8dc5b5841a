// Text as bytes, cut into windows for models that predict the next byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// A text and how it is cut. Sample i is the `context` bytes from i * context on, and its labels are the bytes that
/// follow each of those. The labels of all samples are thus every byte but the first, once, except for a remainder that
/// fills no window.
struct TextSet {
  std::vector<std::uint8_t> bytes;
  std::int64_t context = 1;

  std::int64_t count() const { return bytes.empty() ? 0 : (static_cast<std::int64_t>(bytes.size()) - 1) / context; }
};

struct TextData {
  TextSet train;
  TextSet test;
};

/// Reads a file of any bytes, plain or packed (gzip); recognises packed content by its first bytes, not by its name.
/// The last tenth, rounded down, is `test`; the rest is `train`. A one-line ConfigError, which names the file, if it is
/// missing, cannot be read or unpacked, is too short for a sample in each part, or holds more than 2 GiB.
/// InvalidArgument unless `context` is positive.
TextData load_text_data(const std::filesystem::path& path, std::int64_t context);

/// Reads the lines of such a file, without their line breaks; a break at the end of the file begins no other line.
/// ConfigError as above, and for a file without lines.
std::vector<std::string> load_text_lines(const std::filesystem::path& path);

/// A digest of the bytes and how they are cut. It is equal on two ranks that loaded the same data, packed or not.
std::uint64_t digest(const TextData& data);

}  // namespace lockstep
