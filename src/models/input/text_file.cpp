#include "models/input/text_file.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/input/failure.hpp"
#include "models/input/file_bytes.hpp"
#include "models/input/file_kind.hpp"
#include "models/input/stored_file.hpp"
#include "models/input/token_file.hpp"
#include "models/input/token_pieces.hpp"
#include "models/input/tokens.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The bytes of a text in a file that stays where it is: those wanted are read each time.
class BytesOnDisk final : public TokenSequence {
 public:
  enum class May : std::uint8_t { be_any, be_text };

  /// ConfigError from the first reading of a byte that no text has, if it may only be one.
  BytesOnDisk(std::shared_ptr<const StoredFile> file, std::int64_t count, May may)
      : file_{std::move(file)}, count_{count}, may_{may} {}

  std::int64_t count() const override { return count_; }
  bool are_bytes() const override { return true; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    require_tokens(first, std::ssize(to), count_);
    const bool is_first = !file_->was_read();
    std::vector<std::uint8_t> bytes(to.size());
    file_->read(static_cast<std::uint64_t>(first), bytes);
    if (is_first && may_ == May::be_text) require_no_zero_byte(file_->path(), bytes, first);
    std::ranges::copy(bytes, to.begin());
  }
  void require_unchanged() const override { file_->require_unchanged(); }

 private:
  std::shared_ptr<const StoredFile> file_;
  std::int64_t count_;
  May may_;
};

TextFile read_text(const fs::path& path, BytesOnDisk::May may, DataMemory& memory) {
  FileBytes file{path};
  if (std::optional<std::vector<std::uint8_t>> text = read_all(file, memory.left_bytes)) {
    (void)memory.take(text->size());
    if (may == BytesOnDisk::May::be_text) require_text(path, *text);
    const FixedArray<std::uint8_t> kept{*std::move(text)};
    return {.path = path, .tokens = tokens_of_bytes(kept), .memory = kept};
  }
  if (file.packed()) memory.refuse_packed(file);
  std::vector<std::uint8_t> first(512);
  first.resize(file.read(first));
  if (may == BytesOnDisk::May::be_text) require_text(path, first);
  const std::shared_ptr<const StoredFile> stored = StoredFile::unread(file);
  return {.path = path,
          .tokens = std::make_shared<BytesOnDisk>(stored, static_cast<std::int64_t>(file.most_bytes()), may),
          .file = stored};
}

TextFile read_tokens(const fs::path& path, std::int64_t vocabulary) {
  TokenFile opened = open_token_file(path, vocabulary);
  return {.path = path, .tokens = std::move(opened.tokens), .file = std::move(opened.file), .vocabulary = vocabulary};
}

}  // namespace

void require_text(const fs::path& path, std::span<const std::uint8_t> first) {
  if (const std::optional<FileKind> kind = kind_of(first.first(std::min<std::size_t>(first.size(), 512)), path))
    fail_file(path,
              fmt::format("is {}, not a text; expected a text file, plain or packed (gzip){}{}, or --binary, which "
                          "takes files of any bytes",
                          kind->name, kind->as_text.empty() ? "" : ": ", kind->as_text));
  if (begins_token_file(first))
    fail_file(path, "is a file of tokens; expected --vocabulary N, where every token is below N");
  require_no_zero_byte(path, first, 0);
}

TextFile TextFile::read(const fs::path& path, const TextData::Options& options, DataMemory& memory) {
  if (options.vocabulary) return read_tokens(path, *options.vocabulary);
  return read_text(path, options.binary ? BytesOnDisk::May::be_any : BytesOnDisk::May::be_text, memory);
}

TextFile TextFile::restore(const nlohmann::json& saved, const BlockReader& block) {
  TextFile file{.path = saved.at("path").get<std::string>(), .tokens = nullptr};
  if (saved.contains("memory")) {
    file.memory = block.array<std::uint8_t>(saved.at("memory"));
    file.tokens = tokens_of_bytes(file.memory);
    return file;
  }
  file.file = StoredFile::restore(saved.at("file"), block);
  if (saved.contains("vocabulary")) file.vocabulary = saved.at("vocabulary").get<std::int64_t>();
  const auto count = saved.at("count").get<std::int64_t>();
  if (file.vocabulary)
    file.tokens = tokens_in_file(file.file, count, *file.vocabulary);
  else
    file.tokens = std::make_shared<BytesOnDisk>(file.file, count, BytesOnDisk::May::be_any);
  return file;
}

nlohmann::json TextFile::save(BlockWriter& block) const {
  if (!file) return {{"path", path.string()}, {"memory", block.add(memory)}};
  nlohmann::json saved{{"path", path.string()}, {"file", file->save(block)}, {"count", tokens->count()}};
  if (vocabulary) saved["vocabulary"] = *vocabulary;
  return saved;
}

}  // namespace lockstep
