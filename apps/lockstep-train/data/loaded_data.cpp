#include "apps/lockstep-train/data/loaded_data.hpp"

#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "apps/lockstep-train/data/index_file.hpp"
#include "apps/lockstep-train/data/node_data.hpp"
#include "models/input/text_sets.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string absolute_text(const fs::path& path) {
  std::error_code ignored;
  return fs::absolute(path, ignored).string();
}

/// What is read, and how: of two ranks with the same text, one may read for both. Where a schema decides, options do
/// not count.
std::string key_of(std::string_view kind, const fs::path& path, const LabelledData::Options& options) {
  const std::string common = fmt::format("{} {} {} {} {}", kind, absolute_text(path), static_cast<int>(options.dtype),
                                         options.memory_bytes, static_cast<int>(options.test_only));
  const std::string split = fmt::format("{} {}", static_cast<int>(options.split), options.test_fraction);
  if (!options.schema)
    return fmt::format("{} {} {} {} {} {}", common, options.classes.value_or(0), options.label_column, split,
                       static_cast<int>(options.task), static_cast<int>(options.scaling));
  const DataSchema& schema = *options.schema;
  return fmt::format("{} {} {} {}", common, schema.to_json(), schema.label_column.empty() ? options.label_column : "",
                     schema.split == DataSchema::Split::files ? split : "");
}

std::string key_of(const fs::path& path, const TextData::Options& options) {
  return fmt::format("text {} {} {} {} {} {}", absolute_text(path), options.schema ? options.schema->to_json() : "",
                     options.context, options.vocabulary.value_or(0), options.binary, options.memory_bytes);
}

}  // namespace

LabelledData load_labelled_data_once(const fs::path& path, const LabelledData::Options& options,
                                     const fs::path& index_folder) {
  const std::string key = key_of("labelled", path, options);
  const IndexFile index{index_folder, fmt::format("{} {}", absolute_text(path), static_cast<int>(options.test_only))};
  const auto write = [&](const BlockWriter& block) {
    // A training that goes on from here is given this schema.
    LabelledData::Options with_schema = options;
    with_schema.schema = DataSchema::parse(block.header.at("schema").get<std::string>(), "data");
    index.write(block, {key, key_of("labelled", path, with_schema)});
  };
  const auto read = [&] {
    if (const std::optional<BlockReader> known = index.read(key)) return BlockWriter{*known};
    BlockWriter made = read_labelled_block(path, options);
    write(made);
    return made;
  };
  if (const std::optional<BlockReader> block = read_once_a_node(key, read))
    return labelled_data_of(*block, options.dtype);
  if (const std::optional<BlockReader> known = index.read(key)) return labelled_data_of(*known, options.dtype);
  return load_labelled_data(path, options, write);
}

LabelledData load_unlabelled_data_once(const fs::path& file, const LabelledData::Options& options) {
  const auto read = [&] { return read_unlabelled_block(file, options); };
  const std::optional<BlockReader> block = read_once_a_node(key_of("unlabelled", file, options), read);
  return block ? labelled_data_of(*block, options.dtype) : LabelledData::load_unlabelled(file, options);
}

DigestedText load_text_data_once(const fs::path& path, const TextData::Options& options) {
  const auto read = [&] { return read_text_block(path, options); };
  const std::optional<BlockReader> block = read_once_a_node(key_of(path, options), read);
  return block ? digested_text_of(*block) : load_digested_text(path, options);
}

std::vector<std::string> load_text_lines_once(const fs::path& path, const TextData::Options& options) {
  const auto read = [&] { return read_lines_block(path, options); };
  const std::optional<BlockReader> block = read_once_a_node(fmt::format("lines of {}", key_of(path, options)), read);
  return block ? text_lines_of(*block) : load_text_lines(path, options);
}

}  // namespace lockstep
