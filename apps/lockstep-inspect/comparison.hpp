// In what two checkpoints or files of tensors differ.
#pragma once

#include <filesystem>

#include "apps/lockstep-inspect/contents.hpp"

namespace lockstep {

/// Of a checkpoint beside a file of tensors, only its weights are compared. Trouble is any difference. ConfigError if
/// there is nothing at one of the paths, or a folder of checkpoints; also throws as contents_of and OpenTensorFile.
Report compare(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace lockstep
