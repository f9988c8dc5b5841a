#include "models/input/shared_data.hpp"

#include <memory>
#include <utility>

#include "models/input/data_index.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/saved_rows.hpp"
#include "models/input/text_file.hpp"
#include "models/input/text_sets.hpp"

namespace lockstep {
namespace {

using BlockJson = nlohmann::json;

BlockJson saved_part(const LabelledRows& part, BlockWriter& block) {
  if (!part.rows) return nullptr;
  const std::size_t number = save_rows(part.rows, block);
  return {{"rows", number},
          {"labels", block.add(part.labels)},
          {"numbers", block.add(part.numbers)},
          {"counters", part.counters}};
}

LabelledRows restored_part(const BlockJson& saved, const std::vector<std::shared_ptr<const NumberRows>>& rows,
                           const BlockReader& block) {
  if (saved.is_null()) return {};
  return {.rows = rows.at(saved.at("rows").get<std::size_t>()),
          .labels = block.array<std::int32_t>(saved.at("labels")),
          .numbers = block.array<double>(saved.at("numbers")),
          .counters = saved.at("counters").get<std::vector<std::string>>()};
}

BlockWriter block_of(const LabelledParts& parts) {
  BlockWriter block;
  block.header["schema"] = parts.schema.to_json();
  block.header["digest"] = parts.digest;
  block.header["train"] = saved_part(parts.train, block);
  block.header["test"] = saved_part(parts.test, block);
  return block;
}

BlockJson saved_files(const std::vector<TextFile>& files, BlockWriter& block) {
  BlockJson saved = BlockJson::array();
  for (const TextFile& file : files) saved.push_back(file.save(block));
  return saved;
}

std::vector<TextFile> restored_files(const BlockJson& saved, const BlockReader& block) {
  std::vector<TextFile> files;
  for (const BlockJson& file : saved) files.push_back(TextFile::restore(file, block));
  return files;
}

}  // namespace

LabelledData load_labelled_data(const std::filesystem::path& path, const LabelledData::Options& options,
                                const std::function<void(const BlockWriter&)>& with_block) {
  const BlockJson files = identities_of(data_files(path));
  LabelledParts parts = parts_of(load_labelled_sets(path, options));
  BlockWriter block = block_of(parts);
  set_files(block, files);
  with_block(block);
  return labelled_data_of(std::move(parts), options.dtype);
}

BlockWriter read_labelled_block(const std::filesystem::path& path, const LabelledData::Options& options) {
  const BlockJson files = identities_of(data_files(path));
  BlockWriter block = block_of(parts_of(load_labelled_sets(path, options)));
  set_files(block, files);
  return block;
}

BlockWriter read_unlabelled_block(const std::filesystem::path& file, const LabelledData::Options& options) {
  return block_of(parts_of(load_unlabelled_sets(file, options)));
}

LabelledData labelled_data_of(const BlockReader& block, DType dtype) {
  const BlockJson& header = block.header();
  const std::vector<std::shared_ptr<const NumberRows>> rows = restore_rows(block);
  return labelled_data_of({.schema = DataSchema::parse(header.at("schema").get<std::string>(), "shared data"),
                           .train = restored_part(header.at("train"), rows, block),
                           .test = restored_part(header.at("test"), rows, block),
                           .digest = header.at("digest").get<std::uint64_t>()},
                          dtype);
}

DigestedText load_digested_text(const std::filesystem::path& path, const TextData::Options& options) {
  DigestedText text{.data = text_sets_of(read_text_files(path, options))};
  text.digest = digest(text.data);
  return text;
}

BlockWriter read_text_block(const std::filesystem::path& path, const TextData::Options& options) {
  const TextFiles files = read_text_files(path, options);
  const std::uint64_t of_all = digest(text_sets_of(files));  // reads what stays on disk, before it is saved
  BlockWriter block;
  block.header = {{"path", path.string()},
                  {"context", files.options.context},
                  {"vocabulary", files.options.vocabulary.value_or(0)},
                  {"binary", files.options.binary},
                  {"digest", of_all},
                  {"train", saved_files(files.train, block)},
                  {"test", saved_files(files.test, block)}};
  return block;
}

DigestedText digested_text_of(const BlockReader& block) {
  const BlockJson& header = block.header();
  TextFiles files{.path = header.at("path").get<std::string>(),
                  .options = {.context = header.at("context").get<std::int64_t>()}};
  files.options.binary = header.at("binary").get<bool>();
  if (const auto vocabulary = header.at("vocabulary").get<std::int64_t>(); vocabulary > 0)
    files.options.vocabulary = vocabulary;
  files.train = restored_files(header.at("train"), block);
  files.test = restored_files(header.at("test"), block);
  return {text_sets_of(files), header.at("digest").get<std::uint64_t>()};
}

BlockWriter read_lines_block(const std::filesystem::path& path, const TextData::Options& options) {
  BlockWriter block;
  std::vector<char> text;
  std::vector<std::uint64_t> ends;
  for (const std::string& line : load_text_lines(path, options)) {
    text.insert(text.end(), line.begin(), line.end());
    ends.push_back(text.size());
  }
  block.header["text"] = block.add(FixedArray<char>{std::move(text)});
  block.header["ends"] = block.add(FixedArray<std::uint64_t>{std::move(ends)});
  return block;
}

std::vector<std::string> text_lines_of(const BlockReader& block) {
  const auto text = block.array<char>(block.header().at("text"));
  std::vector<std::string> lines;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : block.array<std::uint64_t>(block.header().at("ends"))) {
    lines.emplace_back(text.data() + begin, end - begin);
    begin = end;
  }
  return lines;
}

}  // namespace lockstep
