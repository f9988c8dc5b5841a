#include "train/loaded_data.hpp"

#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "train/node_data.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// What is read, and how: of two ranks with the same text, one may read for both.
std::string key_of(std::string_view kind, const fs::path& path, const std::optional<DataSchema>& schema) {
  std::error_code ignored;
  return fmt::format("{} {} {}", kind, fs::absolute(path, ignored).string(), schema ? to_json(*schema) : "");
}

std::string key_of(std::string_view kind, const fs::path& path, const LabelledOptions& options) {
  return fmt::format("{} {} {} {} {} {} {} {}", key_of(kind, path, options.schema), options.classes.value_or(0),
                     static_cast<int>(options.dtype), options.label_column, options.memory_bytes,
                     static_cast<int>(options.split), options.test_fraction, static_cast<int>(options.parts));
}

std::string key_of(const fs::path& path, const TextOptions& options) {
  return fmt::format("{} {} {} {}", key_of("text", path, options.schema), options.context,
                     options.vocabulary.value_or(0), options.memory_bytes);
}

}  // namespace

LabelledData load_labelled_data_once(const fs::path& path, const LabelledOptions& options) {
  const auto read = [&] { return read_labelled_block(path, options); };
  const std::optional<BlockReader> block = read_once_a_node(key_of("labelled", path, options), read);
  return block ? labelled_data_of(*block, options.dtype) : load_labelled_data(path, options);
}

LabelledData load_unlabelled_data_once(const fs::path& file, const LabelledOptions& options) {
  const auto read = [&] { return read_unlabelled_block(file, options); };
  const std::optional<BlockReader> block = read_once_a_node(key_of("unlabelled", file, options), read);
  return block ? labelled_data_of(*block, options.dtype) : load_unlabelled_data(file, options);
}

DigestedText load_text_data_once(const fs::path& path, const TextOptions& options) {
  const auto read = [&] { return read_text_block(path, options); };
  const std::optional<BlockReader> block = read_once_a_node(key_of(path, options), read);
  return block ? digested_text_of(*block) : load_digested_text(path, options);
}

std::vector<std::string> load_text_lines_once(const fs::path& path) {
  const auto read = [&] { return read_lines_block(path); };
  const std::optional<BlockReader> block = read_once_a_node(key_of("lines", path, std::nullopt), read);
  return block ? text_lines_of(*block) : load_text_lines(path);
}

}  // namespace lockstep
