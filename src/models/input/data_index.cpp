#include "models/input/data_index.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <lockstep/core/base/error.hpp>

#include "core/base/digest.hpp"
#include "models/input/file_identity.hpp"

namespace lockstep {
namespace {

/// Before the block: what this is, and a digest of the block.
struct IndexHead {
  char magic[8] = {'l', 's', 'i', 'n', 'd', 'e', 'x', '1'};
  std::uint64_t digest = 0;
  std::uint8_t padding[48] = {};
};
static_assert(sizeof(IndexHead) == 64, "a block begins at a multiple of 64");

bool stays_on_disk(const nlohmann::json& rows) {
  if (rows.contains("file")) return true;
  return rows.contains("pieces") &&
         std::ranges::any_of(rows.at("pieces"), [](const nlohmann::json& piece) { return piece.contains("file"); });
}

std::uint64_t bytes_in(const nlohmann::json& files) {
  std::uint64_t bytes = 0;
  for (const nlohmann::json& file : files)
    if (!file.at("identity").is_null()) bytes += file.at("identity").at("bytes").get<std::uint64_t>();
  return bytes;
}

/// Its identity; null if there is no such file.
nlohmann::json identity_or_null(const std::filesystem::path& path) {
  try {
    return identity_of(path);
  } catch (const ConfigError&) {
    return nullptr;
  }
}

/// As files are written that are there, with what they were.
bool are_unchanged(const nlohmann::json& files) {
  return std::ranges::all_of(files, [](const nlohmann::json& file) {
    return identity_or_null(file.at("path").get<std::string>()) == file.at("identity");
  });
}

}  // namespace

nlohmann::json identities_of(const std::vector<std::filesystem::path>& files) {
  nlohmann::json identities = nlohmann::json::array();
  for (const std::filesystem::path& file : files)
    identities.push_back({{"path", file.string()}, {"identity", identity_or_null(file)}});
  return identities;
}

void set_files(BlockWriter& block, const nlohmann::json& before) {
  if (are_unchanged(before)) block.header["files"] = before;
}

std::optional<std::vector<std::byte>> index_of(const BlockWriter& block, const std::vector<std::string>& keys) {
  const nlohmann::json& header = block.header;
  if (!header.contains("files") || !std::ranges::any_of(header.at("rows"), stays_on_disk) ||
      block.bytes() > bytes_in(header.at("files")) / 2)
    return std::nullopt;
  BlockWriter marked = block;
  marked.header["index"] = true;
  marked.header["keys"] = keys;
  const std::vector<std::byte> content = marked.copy();
  IndexHead head;
  head.digest = digest_of(content);
  std::vector<std::byte> index(sizeof head + content.size());
  std::memcpy(index.data(), &head, sizeof head);
  std::ranges::copy(content, index.begin() + sizeof head);
  return index;
}

std::optional<BlockWriter> block_of_index(std::vector<std::byte> index, std::string_view key) {
  IndexHead head;
  if (index.size() <= sizeof head) return std::nullopt;
  std::memcpy(&head, index.data(), sizeof head);
  if (std::memcmp(head.magic, IndexHead{}.magic, sizeof head.magic) != 0) return std::nullopt;
  const auto kept = std::make_shared<std::vector<std::byte>>(std::move(index));
  const auto content = std::span<const std::byte>{*kept}.subspan(sizeof head);
  if (digest_of(content) != head.digest) return std::nullopt;
  const BlockReader block{kept, content};
  const auto keys = block.header().at("keys").get<std::vector<std::string>>();
  if (std::ranges::find(keys, key) == keys.end() || !are_unchanged(block.header().at("files"))) return std::nullopt;
  return BlockWriter{block};
}

}  // namespace lockstep
