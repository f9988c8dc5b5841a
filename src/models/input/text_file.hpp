// One file of a text, or of tokens: read, or taken over from a process that has read it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/models/input/text.hpp>

#include "models/input/data_block.hpp"
#include "models/input/number_rows.hpp"
#include "models/input/stored_file.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"

namespace lockstep {

struct TextFile {
  std::filesystem::path path;
  std::shared_ptr<const TokenSequence> tokens;
  FixedArray<std::uint8_t> memory = {};         ///< the bytes, if they are in memory
  std::shared_ptr<const StoredFile> file = {};  ///< if it stays on disk
  std::optional<std::int64_t> vocabulary = {};  ///< of a file of tokens

  /// With a vocabulary, opens a file of tokens, each of which is checked when it is read. Without one, reads a file of
  /// bytes into memory, or opens it if it does not fit into `memory`. ConfigError as TextData::load.
  static TextFile read(const std::filesystem::path& path, const TextData::Options& options, DataMemory& memory);

  /// What `save` returned, as a file again. ConfigError if a file that stays on disk is gone, or is another.
  static TextFile restore(const nlohmann::json& saved, const BlockReader& block);

  /// Call it after all of it has been read once.
  nlohmann::json save(BlockWriter& block) const;
};

/// What TextData::load reads, and how it makes a training and a test set of that.
struct TextFiles {
  std::filesystem::path path;
  TextData::Options options;  ///< with the vocabulary of the schema
  std::vector<TextFile> train = {};
  std::vector<TextFile> test = {};  ///< if empty, a part of the others is
};
TextFiles read_text_files(const std::filesystem::path& path, const TextData::Options& options);
TextSets text_sets_of(const TextFiles& files);

/// ConfigError for archives, images, files of tokens and whatever else is no text, from whose bytes a model would learn
/// nothing that was meant. `first` holds all bytes of the file, or its first 512.
void require_text(const std::filesystem::path& path, std::span<const std::uint8_t> first);

}  // namespace lockstep
