#include "train/index_file.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/log.hpp>

#include "checkpoint/file.hpp"
#include "input/data_index.hpp"
#include "input/shared_data.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Nodes may know one file by other numbers, so each has an index of its own.
std::string node_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

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
  if (!folder.empty())
    path_ = folder / fmt::format("data-{}.index", to_hex(digest_of(fmt::format("{} {}", node_name(), subject))));
}

std::optional<BlockWriter> IndexFile::read(const std::string& key) const {
  std::error_code ignored;
  if (path_.empty() || !fs::is_regular_file(path_, ignored)) return std::nullopt;
  try {
    const ExistingFile file{path_};
    std::vector<std::byte> bytes(file.size());
    file.read(0, bytes);
    std::optional<BlockWriter> block = block_of_index(std::move(bytes), key);
    if (!block) return std::nullopt;
    // Throws where another version has laid it out in another way.
    (void)labelled_data_of(block->in_process(), DType::f32);
    log::info(fmt::format("data: known by {}; what is read of them is checked then", path_.string()));
    return block;
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
