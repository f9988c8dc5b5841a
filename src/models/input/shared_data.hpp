// Data that one process of a node reads for all: what it reads becomes a block of memory, of which the others, and it
// too, make the same as the loading functions return.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/text.hpp>

#include "models/input/data_block.hpp"
#include "models/input/text_sets.hpp"

namespace lockstep {

/// As LabelledData::load. `with_block` sees the block that others could make the same data of.
LabelledData load_labelled_data(const std::filesystem::path& path, const LabelledData::Options& options,
                                const std::function<void(const BlockWriter&)>& with_block);

/// As LabelledData::load and LabelledData::load_unlabelled.
BlockWriter read_labelled_block(const std::filesystem::path& path, const LabelledData::Options& options);
BlockWriter read_unlabelled_block(const std::filesystem::path& file, const LabelledData::Options& options);

/// ConfigError if a file that stays on disk is not there any more, or is another.
LabelledData labelled_data_of(const BlockReader& block, DType dtype);

/// As TextData::load, with the digest of the data: what stays on disk is read once, to be checked and digested.
struct DigestedText {
  TextSets data = {};
  std::uint64_t digest = 0;
};
DigestedText load_digested_text(const std::filesystem::path& path, const TextData::Options& options);

/// The same.
BlockWriter read_text_block(const std::filesystem::path& path, const TextData::Options& options);
DigestedText digested_text_of(const BlockReader& block);

/// As load_text_lines.
BlockWriter read_lines_block(const std::filesystem::path& path, const TextData::Options& options);
std::vector<std::string> text_lines_of(const BlockReader& block);

}  // namespace lockstep
