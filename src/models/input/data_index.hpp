// The index of a data set: what is known of data that stay on disk once they have been read, so that the next process
// does not have to read all of them before it begins.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/input/data_block.hpp"

namespace lockstep {

/// What identifies each of `files` now; null for one that is not there. Call it before they are read.
nlohmann::json identities_of(const std::vector<std::filesystem::path>& files);

/// Says in `block`, which has been read since, of which files it is made. Says nothing if one of them is not what it
/// was `before`.
void set_files(BlockWriter& block, const nlohmann::json& before);

/// The bytes of an index of the block, which each of `keys` names. Nothing if no rows stay on disk, if the index would
/// be larger than half of the files, or if the block does not say of which files it is.
std::optional<std::vector<std::byte>> index_of(const BlockWriter& block, const std::vector<std::string>& keys);

/// The block of which `index` was made. Nothing if the index is damaged or does not have `key`, or if a file is not
/// what it was: it has another inode, size or time, is gone, or is there where none was.
std::optional<BlockWriter> block_of_index(std::vector<std::byte> index, std::string_view key);

}  // namespace lockstep
