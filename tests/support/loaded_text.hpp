// Texts as the library's own data sets.
#pragma once

#include <filesystem>

#include "models/input/shared_data.hpp"

namespace lockstep::test {

inline TextSets load_text_sets(const std::filesystem::path& path, const TextData::Options& options) {
  return load_digested_text(path, options).data;
}

}  // namespace lockstep::test
