// The texts of a training: sequences of tokens, and how they are cut into samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/models/input/schema.hpp>
#include <lockstep/models/input/text.hpp>

#include "models/input/tokens.hpp"

namespace lockstep {

/// Tokens, cut into windows of `context`. Sample i holds the tokens i * context to i * context + context - 1, and its
/// label at each position is the token after it. So every token but the first is a label exactly once, except for a
/// remainder that fills no window.
struct TextSet {
  std::shared_ptr<const TokenSequence> tokens;  ///< none if null
  std::int64_t context = 1;

  std::int64_t count() const { return !tokens || tokens->count() == 0 ? 0 : (tokens->count() - 1) / context; }
};

struct TextSets {
  TextSet train;
  TextSet test;
  DataSchema schema = {};
};

/// Reads the lines of a file, plain or packed, without their line breaks; a break at the end of the file does not start
/// another line. Of the options, `binary` and the schema count. ConfigError as TextData::load, for more than 2 GiB, and
/// for a file without lines.
std::vector<std::string> load_text_lines(const std::filesystem::path& path, const TextData::Options& options);

/// A digest of the tokens and how they are cut. It is equal on two ranks that loaded the same data, however it is
/// packed or spread over files.
std::uint64_t digest(const TextSets& sets);

}  // namespace lockstep
