// Files that other users may have to write.
#pragma once

#include <filesystem>

namespace lockstep {

/// Gives `path` the permissions of the folder that it lies in, whatever the umask of its creator, who calls this.
/// `descriptor` is open on `path`, a file or a folder. Nothing happens if that is not this user's.
void share_with_writers_of_folder(int descriptor, const std::filesystem::path& path);

}  // namespace lockstep
