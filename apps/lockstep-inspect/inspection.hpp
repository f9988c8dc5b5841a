// What a checkpoint, a folder of checkpoints or a file of tensors holds.
#pragma once

#include <filesystem>

#include "apps/lockstep-inspect/contents.hpp"

namespace lockstep {

/// Of the folder of a run (RunRecord), those in its checkpoints. Reads every byte. Trouble is a tensor that has another
/// digest than the manifest gives, and in a folder of checkpoints one that is damaged. Throws as contents_of and
/// OpenTensorFile.
Report inspect(const std::filesystem::path& path);

}  // namespace lockstep
