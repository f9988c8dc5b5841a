// Files that other users may have to write.
#pragma once

#include <filesystem>

#include "core/base/descriptor.hpp"
#include "core/base/parts.hpp"

namespace lockstep {

/// Gives the file or folder at `path`, which this process has just made and on which `descriptor` is open, the
/// permissions of the folder that contains it, whatever the umask, and if this is root, the folder's owner.
void share_with_writers_of_folder(int descriptor, const std::filesystem::path& path);

/// Opens a file, and makes and shares it if it is not there. One that is there keeps its owner and permissions. It
/// follows no link at the end of `path`, and does not wait for the other end of a pipe. Negative, and errno says why,
/// if that fails.
LOCKSTEP_PARTS_API Descriptor open_shared(const std::filesystem::path& path, int flags);

}  // namespace lockstep
