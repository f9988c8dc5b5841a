#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/input/range.hpp>
#include <lockstep/input/text.hpp>

#include "base/descriptor.hpp"
#include "input/failure.hpp"
#include "input/file_bytes.hpp"
#include "input/file_kind.hpp"
#include "input/labelled_sets.hpp"
#include "input/number_rows.hpp"
#include "input/token_file.hpp"
#include "input/token_pieces.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_text = std::uint64_t{2} << 30;
constexpr std::int64_t largest_vocabulary = 1 << 16;
constexpr std::int64_t parts = 10;  // one of which is the test part, unless files are
constexpr std::size_t tokens_at_once = 1 << 16;

/// ConfigError for files that would train, and teach nothing.
void require_text(const fs::path& path, std::span<const std::uint8_t> first) {
  if (const std::string_view archive = archive_name(first.first(std::min<std::size_t>(first.size(), 512)));
      !archive.empty())
    fail_file(path, fmt::format("is {}, not a text; expected a text file, plain or packed (gzip)", archive));
  if (begins_token_file(first))
    fail_file(path, "is a file of tokens; expected --vocabulary N, where every token is below N");
}

/// The bytes of a file that stays where it is.
class BytesOnDisk final : public TokenSequence {
 public:
  BytesOnDisk(Descriptor file, fs::path path, std::uint64_t bytes)
      : file_{std::move(file)}, path_{std::move(path)}, count_{static_cast<std::int64_t>(bytes)} {}

  std::int64_t count() const override { return count_; }
  bool are_bytes() const override { return true; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    require_tokens(first, std::ssize(to), count_);
    std::vector<std::uint8_t> bytes(to.size());
    read_again(file_, path_, static_cast<std::uint64_t>(first), bytes);
    std::ranges::copy(bytes, to.begin());
  }

 private:
  Descriptor file_;
  fs::path path_;
  std::int64_t count_;
};

std::shared_ptr<const TokenSequence> read_text(const fs::path& path, DataMemory& memory) {
  FileBytes file{path};
  const std::uint64_t bytes = count_bytes(path, memory.left_bytes);
  if (memory.take(bytes)) {
    std::vector<std::uint8_t> text = read_whole_file(path, bytes, "a file that does not change");
    require_text(path, text);
    return tokens_of_text(std::move(text));
  }
  if (file.packed()) memory.refuse_packed(file);
  std::vector<std::uint8_t> first(512);
  first.resize(file.read(first));
  require_text(path, first);
  return std::make_shared<BytesOnDisk>(file.duplicate(), path, file.most_bytes());
}

void require_there(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error) && !error)
    fail_file(path, "does not exist; expected a text file, plain or packed (gzip), or a folder of them");
}

bool is_for_test(const fs::path& file) {
  constexpr std::array<std::string_view, 4> names{"val", "valid", "validation", "test"};
  const auto is_letter = [](unsigned char each) { return std::isalpha(each) != 0; };
  const std::string name = file.filename().string();
  for (auto begin = name.begin(); begin != name.end();) {
    begin = std::find_if(begin, name.end(), is_letter);
    const auto end = std::find_if_not(begin, name.end(), is_letter);
    if (std::ranges::find(names, std::string_view{begin, end}) != names.end()) return true;
    begin = end;
  }
  return false;
}

struct TextFiles {
  std::vector<fs::path> train;
  std::vector<fs::path> test;  ///< if empty, a part of the others is
};

/// The file, or the files of the folder.
TextFiles find_files(const fs::path& path) {
  require_there(path);
  std::error_code error;
  if (!fs::is_directory(path, error)) return {{path}, {}};
  TextFiles files;
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

/// Reads files of one kind.
class TokenReader {
 public:
  explicit TokenReader(const TextOptions& options) : vocabulary_{options.vocabulary}, memory_{options.memory_bytes} {}

  std::shared_ptr<const TokenPieces> read(const std::vector<fs::path>& files) {
    auto pieces = std::make_shared<TokenPieces>();
    for (const fs::path& file : files) {
      const auto tokens = vocabulary_ ? open_token_file(file, *vocabulary_) : read_text(file, memory_);
      pieces->append(tokens, {0, tokens->count()});
    }
    return pieces;
  }

 private:
  std::optional<std::int64_t> vocabulary_;
  DataMemory memory_;
};

/// The options, with the vocabulary of the schema. ConfigError if they contradict it.
TextOptions by_schema(const fs::path& path, TextOptions options) {
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
  return options;
}

/// ConfigError unless the last tenth of `count` tokens holds a sample.
void require_enough_for_two(const fs::path& path, std::int64_t count, const TextOptions& options) {
  if (count / parts > options.context) return;
  const char* const unit = options.vocabulary ? "token" : "byte";
  fail_file(path,
            fmt::format("{}; expected at least {} x ({} + 1) {}s{}, so that its last tenth holds a context of {} and "
                        "the {} after it",
                        count == 0 ? "is empty" : fmt::format("holds {} {}s", count, unit), parts, options.context,
                        unit, options.vocabulary ? "" : " of text", options.context, unit));
}

/// ConfigError unless both parts hold a sample.
void require_enough(const fs::path& path, std::int64_t train, std::int64_t test, const TextOptions& options) {
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

TextData load_text_data(const fs::path& path, const TextOptions& given) {
  const TextOptions options = by_schema(path, given);
  if (options.context < 1)
    throw InvalidArgument{fmt::format("a context of {} tokens; expected 1 or more", options.context)};
  if (options.vocabulary && (*options.vocabulary < 1 || *options.vocabulary > largest_vocabulary))
    throw InvalidArgument{fmt::format("a vocabulary of {}; expected 1 to {}, as tokens have 16 bits",
                                      *options.vocabulary, largest_vocabulary)};
  const TextFiles files = find_files(path);
  TokenReader reader{options};
  const auto train = reader.read(files.train), test = reader.read(files.test);
  const std::int64_t count = train->count();
  DataSchema schema{.kind = options.vocabulary ? "tokens" : "text", .vocabulary = options.vocabulary};
  if (!files.test.empty()) {
    require_enough(path, count, test->count(), options);
    return {{train, options.context}, {test, options.context}, std::move(schema)};
  }
  schema.split = DataSchema::Split::last;
  schema.test_fraction = 1.0 / parts;
  require_enough_for_two(path, count, options);
  const std::int64_t boundary = count - count / parts;
  return {{train->slice({0, boundary}), options.context},
          {train->slice({boundary, count}), options.context},
          std::move(schema)};
}

std::vector<std::string> load_text_lines(const fs::path& path) {
  require_there(path);
  const std::vector<std::uint8_t> bytes = read_whole_file(path, largest_text, "lines of at most 2 GiB in all");
  require_text(path, bytes);
  if (bytes.empty()) fail_file(path, "is empty; expected 1 line or more");
  std::vector<std::string> lines;
  for (auto begin = bytes.begin(); begin != bytes.end();) {
    const auto end = std::find(begin, bytes.end(), '\n');
    lines.emplace_back(begin, end);
    begin = end == bytes.end() ? end : end + 1;
  }
  return lines;
}

std::uint64_t digest(const TextData& data) {
  Digest all;
  update(all, data.train);
  update(all, data.test);
  return all.value();
}

}  // namespace lockstep
