// Files that other users may have to write.
#pragma once

#include <filesystem>

namespace lockstep {

/// Gives the file or folder at `path`, on which `descriptor` is open, the permissions of the folder that contains it,
/// whatever its creator's umask, and if root has made it, the folder's owner. Does nothing if another user owns it.
void share_with_writers_of_folder(int descriptor, const std::filesystem::path& path);

}  // namespace lockstep
