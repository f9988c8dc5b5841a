#include "apps/lockstep-train/data/index_file.hpp"

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/digest.hpp"
#include "core/base/host_name.hpp"
#include "core/base/log_settings.hpp"
#include "models/input/data_index.hpp"
#include "models/input/shared_data.hpp"
#include "sync/checkpoint/file.hpp"

namespace lockstep {

namespace fs = std::filesystem;

fs::path index_folder(const fs::path& checkpoints) {
  if (!checkpoints.empty()) return checkpoints;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (!cache || !fs::path{cache}.is_absolute()) return {};  // a relative one is invalid, says its standard
  fs::path folder = fs::path{cache} / "lockstep";
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return folder;
}

IndexFile::IndexFile(const fs::path& folder, std::string_view subject) {
  // Nodes may know one file by other numbers, so each has an index of its own.
  if (!folder.empty())
    path_ = folder / fmt::format("data-{}.index", to_hex(digest_of(fmt::format("{} {}", host_name(), subject))));
}

std::optional<BlockReader> IndexFile::read(const std::string& key) const {
  std::error_code ignored;
  if (path_.empty() || !fs::is_regular_file(path_, ignored)) return std::nullopt;
  try {
    const ExistingFile file{path_};
    std::vector<std::byte> bytes(file.size());
    file.read(0, bytes);
    const std::optional<BlockWriter> block = block_of_index(std::move(bytes), key);
    if (!block) return std::nullopt;
    BlockReader known = block->in_process();
    // Throws where another version has laid it out in another way.
    (void)labelled_data_of(known, DType::f32);
    log::info(fmt::format("data: {} is an index of these files; each piece is checked when it is first read",
                          path_.string()));
    return known;
  } catch (const std::exception& error) {
    log::debug(fmt::format("no index of data: {}", error.what()));
    return std::nullopt;
  }
}

void IndexFile::write(const BlockWriter& block, const std::vector<std::string>& keys) const {
  if (path_.empty()) return;
  try {
    const std::optional<std::vector<std::byte>> index = index_of(block, keys);
    if (!index) return;
    NewFile file{path_, "index"};
    file.write(*index);
    file.commit();
  } catch (const std::exception& error) {
    log::debug(fmt::format("no index of data: {}", error.what()));
  }
}

}  // namespace lockstep
