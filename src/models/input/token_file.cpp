// Source of the format: https://github.com/karpathy/llm.c, dev/data/data_common.py and llmc/dataloader.h.
#include "models/input/token_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/input/failure.hpp"
#include "models/input/file_bytes.hpp"
#include "models/input/stored_file.hpp"
#include "models/input/token_pieces.hpp"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the numbers in the files are little-endian");

using Token = std::uint16_t;

constexpr std::size_t header_numbers = 256;
constexpr std::size_t header_bytes = header_numbers * sizeof(std::int32_t);
constexpr std::int32_t token_magic = 20240520;
constexpr std::int32_t version = 1;  // of 16-bit tokens

std::span<std::uint8_t> bytes_of(std::span<Token> tokens) {
  return {reinterpret_cast<std::uint8_t*>(tokens.data()), tokens.size_bytes()};
}

/// ConfigError unless all tokens, of which the first is token `first` of the file, are below `vocabulary`.
void require_below(std::int64_t vocabulary, std::span<const Token> tokens, const std::filesystem::path& path,
                   std::int64_t first) {
  const auto wrong = std::ranges::find_if(tokens, [&](Token token) { return token >= vocabulary; });
  if (wrong != tokens.end())
    fail_file(path, fmt::format("token {} (counted from 0) is {}; expected 0 to {} (--vocabulary {})",
                                first + (wrong - tokens.begin()), *wrong, vocabulary - 1, vocabulary));
}

/// The tokens of a file that stays where it is.
class TokensOnDisk final : public TokenSequence {
 public:
  TokensOnDisk(std::shared_ptr<const StoredFile> file, std::int64_t count, std::int64_t vocabulary)
      : file_{std::move(file)}, count_{count}, vocabulary_{vocabulary} {}

  std::int64_t count() const override { return count_; }
  bool are_bytes() const override { return false; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    require_tokens(first, std::ssize(to), count_);
    std::vector<Token> tokens(to.size());
    file_->read(header_bytes + static_cast<std::uint64_t>(first) * sizeof(Token), bytes_of(tokens));
    require_below(vocabulary_, tokens, file_->path(), first);
    std::ranges::copy(tokens, to.begin());
  }
  void require_unchanged() const override { file_->require_unchanged(); }

 private:
  std::shared_ptr<const StoredFile> file_;
  std::int64_t count_;
  std::int64_t vocabulary_;
};

/// Reads the header: how many tokens follow.
std::int64_t read_header(FileBytes& file) {
  if (file.packed())
    file.fail("is packed (gzip); expected a file of tokens, which is read in parts and must be unpacked");
  std::array<std::uint8_t, header_bytes> bytes;
  const std::size_t found = file.read(bytes);
  if (found == 0) file.fail("is empty; expected a file of tokens");
  if (!begins_token_file(std::span{bytes}.first(found)))
    file.fail(fmt::format("is no file of tokens; expected one as llm.c writes it, which begins with {} (--vocabulary)",
                          token_magic));
  if (found < header_bytes)
    file.fail(fmt::format("truncated: expected a header of {} bytes, found {}", header_bytes, found));
  std::array<std::int32_t, 3> header;
  std::memcpy(header.data(), bytes.data(), sizeof header);
  if (header[1] != version)
    file.fail(fmt::format("is of version {}; expected {}, which has tokens of 16 bits", header[1], version));
  const std::int64_t tokens = header[2];
  const std::uint64_t expected = header_bytes + static_cast<std::uint64_t>(tokens) * sizeof(Token);
  if (tokens < 1) file.fail(fmt::format("its header announces {} tokens; expected 1 or more", tokens));
  if (const std::uint64_t there = file.most_bytes(); there != expected)
    file.fail(fmt::format("{}: expected {} bytes (a header of {} and {} tokens), found {}",
                          there < expected ? "truncated" : "has trailing bytes", expected, header_bytes, tokens,
                          there));
  return tokens;
}

}  // namespace

bool begins_token_file(std::span<const std::uint8_t> first) {
  return first.size() >= sizeof token_magic && std::memcmp(first.data(), &token_magic, sizeof token_magic) == 0;
}

TokenFile open_token_file(const std::filesystem::path& path, std::int64_t vocabulary) {
  FileBytes file{path};
  const std::int64_t count = read_header(file);
  const std::shared_ptr<const StoredFile> stored = StoredFile::unread(file, header_bytes);
  return {stored, tokens_in_file(stored, count, vocabulary)};
}

std::shared_ptr<const TokenSequence> tokens_in_file(std::shared_ptr<const StoredFile> file, std::int64_t count,
                                                    std::int64_t vocabulary) {
  return std::make_shared<TokensOnDisk>(std::move(file), count, vocabulary);
}

}  // namespace lockstep
