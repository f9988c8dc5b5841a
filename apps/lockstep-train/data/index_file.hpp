// Where indices of data are kept: beside the checkpoints, or in a cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/input/data_block.hpp"

namespace lockstep {

/// The folder of checkpoints or, without one, $XDG_CACHE_HOME/lockstep; empty if there is neither.
std::filesystem::path index_folder(const std::filesystem::path& checkpoints);

/// LOCAL. The index of data on this node. An empty folder has none.
class IndexFile {
 public:
  /// `subject` says what is read, as far as all indices of one file have it in common.
  IndexFile(const std::filesystem::path& folder, std::string_view subject);

  /// The block in the index, if that was made with `key` and its files have not changed. Nothing if there is no such
  /// index, or it cannot be read.
  std::optional<BlockReader> read(const std::string& key) const;

  /// Keeps the block for each of `keys`, which say how it was read, if it is worth that. A folder that cannot be
  /// written costs the next process a reading of the data.
  void write(const BlockWriter& block, const std::vector<std::string>& keys) const;

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep
