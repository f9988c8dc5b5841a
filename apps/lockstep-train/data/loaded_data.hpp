// The data of a training, which one rank of each node reads (node_data.hpp).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/text.hpp>

#include "models/input/shared_data.hpp"
#include "models/input/text_sets.hpp"

namespace lockstep {

/// COLL in a run, LOCAL without ranks. As LabelledData::load and LabelledData::load_unlabelled. Of data that stay on
/// disk, an index is kept in `index_folder`: the next process reads nothing of them before it needs it, and checks it
/// then. An empty folder keeps none.
LabelledData load_labelled_data_once(const std::filesystem::path& path, const LabelledData::Options& options,
                                     const std::filesystem::path& index_folder);
LabelledData load_unlabelled_data_once(const std::filesystem::path& file, const LabelledData::Options& options);

/// The same, as load_digested_text and load_text_lines.
DigestedText load_text_data_once(const std::filesystem::path& path, const TextData::Options& options);
std::vector<std::string> load_text_lines_once(const std::filesystem::path& path, const TextData::Options& options);

}  // namespace lockstep
