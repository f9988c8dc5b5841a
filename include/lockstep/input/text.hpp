// Text as bytes, cut into windows for models that predict the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

/// A text and how it is cut: sample i is the `context` bytes from i * context on, and its labels are the bytes behind
/// each of those. So the labels of all samples are every byte but the first, once, up to a rest that fills no window.
struct TextSet {
  std::vector<std::uint8_t> bytes;
  std::int64_t context = 1;

  std::int64_t count() const { return bytes.empty() ? 0 : (static_cast<std::int64_t>(bytes.size()) - 1) / context; }
};

struct TextData {
  TextSet train;
  TextSet test;
};

/// Reads a file of any bytes, plain or packed (gzip), which is known by its first bytes and not by its name. Its last
/// tenth, rounded down, is `test`, the rest `train`. ConfigError of one line, which names the file, where it is not
/// there, cannot be read or unpacked, is too short for a sample in each part, or holds more than 2 GiB; InvalidArgument
/// unless `context` is positive.
TextData load_text_data(const std::filesystem::path& path, std::int64_t context);

/// A digest of the bytes and how they are cut: equal on two ranks when they loaded the same data, packed or not.
std::uint64_t digest(const TextData& data);

}  // namespace lockstep
