#include "input/text_file.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "input/bytes_on_disk.hpp"
#include "input/failure.hpp"
#include "input/file_bytes.hpp"
#include "input/file_identity.hpp"
#include "input/file_kind.hpp"
#include "input/token_file.hpp"
#include "input/token_pieces.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TextFile read_text(const fs::path& path, DataMemory& memory) {
  FileBytes file{path};
  if (std::optional<std::vector<std::uint8_t>> text = read_all(file, memory.left_bytes)) {
    (void)memory.take(text->size());
    require_text(path, *text);
    const FixedArray<std::uint8_t> kept{*std::move(text)};
    return {.path = path, .tokens = tokens_of_bytes(kept), .memory = kept};
  }
  if (file.packed()) memory.refuse_packed(file);
  std::vector<std::uint8_t> first(512);
  first.resize(file.read(first));
  require_text(path, first);
  Descriptor stays = file.duplicate();
  const FileIdentity identity = identity_of(stays, path);
  return {.path = path,
          .tokens = std::make_shared<BytesOnDisk>(std::move(stays), path, static_cast<std::int64_t>(file.most_bytes())),
          .identity = identity};
}

TextFile read_tokens(const fs::path& path, std::int64_t vocabulary) {
  const FileIdentity identity = identity_of(path);
  TextFile read{
      .path = path, .tokens = open_token_file(path, vocabulary), .identity = identity, .vocabulary = vocabulary};
  if (identity_of(path) != identity) fail_file(path, "changed while it was read");
  return read;
}

}  // namespace

void require_text(const fs::path& path, std::span<const std::uint8_t> first) {
  if (const std::string_view archive = archive_name(first.first(std::min<std::size_t>(first.size(), 512)));
      !archive.empty())
    fail_file(path, fmt::format("is {}, not a text; expected a text file, plain or packed (gzip)", archive));
  if (begins_token_file(first))
    fail_file(path, "is a file of tokens; expected --vocabulary N, where every token is below N");
}

TextFile TextFile::read(const fs::path& path, std::optional<std::int64_t> vocabulary, DataMemory& memory) {
  return vocabulary ? read_tokens(path, *vocabulary) : read_text(path, memory);
}

TextFile TextFile::restore(const nlohmann::json& saved, const BlockReader& block) {
  TextFile file{.path = saved.at("path").get<std::string>(), .tokens = nullptr};
  if (saved.contains("memory")) {
    file.memory = block.array<std::uint8_t>(saved.at("memory"));
    file.tokens = tokens_of_bytes(file.memory);
    return file;
  }
  file.identity = saved.at("file").get<FileIdentity>();
  if (saved.contains("vocabulary")) file.vocabulary = saved.at("vocabulary").get<std::int64_t>();
  Descriptor opened = open_again(file.path, *file.identity);
  const auto count = saved.at("count").get<std::int64_t>();
  if (file.vocabulary)
    file.tokens = tokens_in_file(std::move(opened), file.path, count, *file.vocabulary);
  else
    file.tokens = std::make_shared<BytesOnDisk>(std::move(opened), file.path, count);
  return file;
}

nlohmann::json TextFile::save(BlockWriter& block) const {
  if (!identity) return {{"path", path.string()}, {"memory", block.add(memory)}};
  nlohmann::json saved{{"path", path.string()}, {"file", *identity}, {"count", tokens->count()}};
  if (vocabulary) saved["vocabulary"] = *vocabulary;
  return saved;
}

}  // namespace lockstep
