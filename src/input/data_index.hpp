// The index of a data set: what is known of data that stay on disk once they have been read, so that the next process
// does not have to read all of them before it begins.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "input/data_block.hpp"

namespace lockstep {

/// Says in a block which files it was made of. Call it before the files are read, and `set_files` afterwards.
nlohmann::json identities_of(const std::vector<std::filesystem::path>& files);

/// Nothing is said if a file has changed since `before`.
void set_files(BlockWriter& block, const nlohmann::json& before);

/// The bytes of an index that each of `keys` names. Nothing if no rows stay on disk, if they are not most of the data,
/// or if it is not known of which files the block is.
std::optional<std::vector<std::byte>> index_of(const BlockWriter& block, const std::vector<std::string>& keys);

/// The block of which `index` was made. Nothing if that is damaged, or has no such key, or if a file is not what it
/// was: another inode, size or time, or there where none was.
std::optional<BlockWriter> block_of_index(std::vector<std::byte> index, std::string_view key);

}  // namespace lockstep
