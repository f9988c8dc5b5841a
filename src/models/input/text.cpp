#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/text.hpp>

#include "core/base/digest.hpp"
#include "models/input/failure.hpp"
#include "models/input/file_bytes.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/number_rows.hpp"
#include "models/input/samples.hpp"
#include "models/input/shared_data.hpp"
#include "models/input/text_file.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/token_pieces.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_text = std::uint64_t{2} << 30;
constexpr std::int64_t largest_vocabulary = 1 << 16;
constexpr std::int64_t parts = 10;  // one of which is the test part, unless files are
constexpr std::size_t tokens_at_once = 1 << 16;

void require_there(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error) && !error)
    fail_file(path, "does not exist; expected a text file, plain or packed (gzip), or a folder of them");
}

bool is_for_test(const fs::path& file) {
  constexpr std::array<std::string_view, 4> names{"val", "valid", "validation", "test"};
  const auto is_letter = [](char each) { return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z'); };
  const std::string name = file.filename().string();
  for (auto begin = name.begin(); begin != name.end();) {
    begin = std::find_if(begin, name.end(), is_letter);
    const auto end = std::find_if_not(begin, name.end(), is_letter);
    if (std::ranges::find(names, std::string_view{begin, end}) != names.end()) return true;
    begin = end;
  }
  return false;
}

struct FoundFiles {
  std::vector<fs::path> train;
  std::vector<fs::path> test;  ///< if empty, a part of the others is
};

/// The file, or the files of the folder.
FoundFiles find_files(const fs::path& path) {
  require_there(path);
  std::error_code error;
  if (!fs::is_directory(path, error)) return {{path}, {}};
  FoundFiles files;
  for (fs::directory_iterator entry{path, error}, end; !error && entry != end; entry.increment(error)) {
    const fs::path& file = entry->path();
    if (!file.filename().string().starts_with('.')) (is_for_test(file) ? files.test : files.train).push_back(file);
  }
  if (error) fail_file(path, fmt::format("cannot be read: {}", error.message()));
  if (files.train.empty())
    fail_file(path, fmt::format("holds no {}files; expected text files, plain or packed (gzip), or files of tokens",
                                files.test.empty() ? "" : "training "));
  std::ranges::sort(files.train);
  std::ranges::sort(files.test);
  return files;
}

/// All tokens of some files.
std::shared_ptr<const TokenPieces> joined(const std::vector<TextFile>& files) {
  auto pieces = std::make_shared<TokenPieces>();
  for (const TextFile& file : files) pieces->append(file.tokens, {0, file.tokens->count()});
  return pieces;
}

/// The options, with the vocabulary of the schema. ConfigError if they contradict it.
TextData::Options by_schema(const fs::path& path, TextData::Options options) {
  if (!options.schema) return options;
  const DataSchema& model = *options.schema;
  if (!model.sample.empty())
    fail_file(path,
              fmt::format("is read as text; expected {}, on which the model was trained", samples_text(model.sample)));
  if (options.vocabulary && options.vocabulary != model.vocabulary)
    throw ConfigError{
        fmt::format("--vocabulary is {}; the model has {}", *options.vocabulary,
                    model.vocabulary ? fmt::format("{}", *model.vocabulary) : "none, as it was trained on texts")};
  options.vocabulary = model.vocabulary;
  options.binary |= model.kind == "bytes";
  return options;
}

/// ConfigError unless the last tenth of `count` tokens holds a sample.
void require_enough_for_two(const fs::path& path, std::int64_t count, const TextData::Options& options) {
  if (count / parts > options.context) return;
  const char* const unit = options.vocabulary ? "token" : "byte";
  fail_file(path,
            fmt::format("{}; expected at least {} x ({} + 1) {}s{}, so that its last tenth holds a context of {} and "
                        "the {} after it",
                        count == 0 ? "is empty" : fmt::format("holds {} {}s", count, unit), parts, options.context,
                        unit, options.vocabulary ? "" : " of text", options.context, unit));
}

/// ConfigError unless both parts hold a sample.
void require_enough(const fs::path& path, std::int64_t train, std::int64_t test, const TextData::Options& options) {
  if (std::min(train, test) > options.context) return;
  const char* const unit = options.vocabulary ? "token" : "byte";
  fail_file(path,
            fmt::format("its training files hold {0} {2}s and its test files {1}; expected at least {3} + 1 of each, "
                        "for a context and the {2} after it",
                        train, test, unit, options.context));
}

/// As the files have them.
template <class Number>
void update(Digest& digest, const TokenSequence& tokens) {
  std::vector<std::int32_t> read(tokens_at_once);
  std::vector<Number> numbers(tokens_at_once);
  for (std::int64_t first = 0; first < tokens.count();) {
    const auto now = static_cast<std::size_t>(std::min<std::int64_t>(tokens.count() - first, std::ssize(read)));
    tokens.read(first, std::span{read}.first(now));
    std::ranges::transform(std::span{read}.first(now), numbers.begin(),
                           [](std::int32_t token) { return static_cast<Number>(token); });
    digest.update(std::as_bytes(std::span{numbers}.first(now)));
    first += static_cast<std::int64_t>(now);
  }
}

void update(Digest& digest, const TextSet& set) {
  if (!set.tokens) return;
  const bool bytes = set.tokens->are_bytes();
  // Sizes first, so that the same tokens cut in another way have a different digest.
  digest.update(fmt::format("{} {} in samples of {}:", set.tokens->count(), bytes ? "bytes" : "tokens", set.context));
  bytes ? update<std::uint8_t>(digest, *set.tokens) : update<std::int32_t>(digest, *set.tokens);
}

}  // namespace

TextFiles read_text_files(const fs::path& path, const TextData::Options& given) {
  TextFiles read{.path = path, .options = by_schema(path, given)};
  const TextData::Options& options = read.options;
  if (options.context < 1)
    throw InvalidArgument{fmt::format("a context of {} tokens; expected 1 or more", options.context)};
  if (options.vocabulary && (*options.vocabulary < 1 || *options.vocabulary > largest_vocabulary))
    throw InvalidArgument{fmt::format("a vocabulary of {}; expected 1 to {}, as tokens have 16 bits",
                                      *options.vocabulary, largest_vocabulary)};
  const FoundFiles found = find_files(path);
  DataMemory memory{options.memory_bytes};
  for (const fs::path& file : found.train) read.train.push_back(TextFile::read(file, options, memory));
  for (const fs::path& file : found.test) read.test.push_back(TextFile::read(file, options, memory));
  return read;
}

TextSets text_sets_of(const TextFiles& files) {
  const TextData::Options& options = files.options;
  const auto train = joined(files.train), test = joined(files.test);
  const std::int64_t count = train->count();
  DataSchema schema{.kind = options.vocabulary ? "tokens"
                            : options.binary   ? "bytes"
                                               : "text",
                    .vocabulary = options.vocabulary};
  if (!files.test.empty()) {
    require_enough(files.path, count, test->count(), options);
    return {{train, options.context}, {test, options.context}, std::move(schema)};
  }
  schema.split = DataSchema::Split::last;
  schema.test_fraction = 1.0 / parts;
  require_enough_for_two(files.path, count, options);
  const std::int64_t boundary = count - count / parts;
  return {{train->slice({0, boundary}), options.context},
          {train->slice({boundary, count}), options.context},
          std::move(schema)};
}

TextData TextData::load(const fs::path& path, const TextData::Options& options) {
  DigestedText text = load_digested_text(path, options);
  return {.train = std::make_unique<TextSamples>(text.data.train),
          .test = std::make_unique<TextSamples>(text.data.test),
          .digest = text.digest,
          .schema = std::move(text.data.schema)};
}

std::vector<std::string> load_text_lines(const fs::path& path, const TextData::Options& options) {
  require_there(path);
  const std::vector<std::uint8_t> bytes = read_whole_file(path, largest_text, "lines of at most 2 GiB in all");
  if (!by_schema(path, options).binary) require_text(path, bytes);
  if (bytes.empty()) fail_file(path, "is empty; expected 1 line or more");
  std::vector<std::string> lines;
  for (auto begin = bytes.begin(); begin != bytes.end();) {
    const auto end = std::find(begin, bytes.end(), '\n');
    lines.emplace_back(begin, end);
    begin = end == bytes.end() ? end : end + 1;
  }
  return lines;
}

std::uint64_t digest(const TextSets& sets) {
  Digest all;
  update(all, sets.train);
  update(all, sets.test);
  return all.value();
}

}  // namespace lockstep
