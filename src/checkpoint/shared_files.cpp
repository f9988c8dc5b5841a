#include "checkpoint/shared_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {

void share_with_writers_of_folder(int descriptor, const std::filesystem::path& path) {
  struct stat folder = {}, status = {};
  if (::stat(path.has_parent_path() ? path.parent_path().c_str() : ".", &folder) != 0) return;
  if (::fstat(descriptor, &status) != 0 || status.st_uid != ::geteuid()) return;
  // What root makes in a user's folder is the user's, who could not write to it otherwise. A file with another name may
  // be any of root's.
  if (status.st_uid == 0 && folder.st_uid != 0 && (S_ISDIR(status.st_mode) || status.st_nlink == 1))
    (void)!::fchown(descriptor, folder.st_uid, folder.st_gid);
  const mode_t bits = S_ISDIR(status.st_mode) ? 0777 : 0666;
  // Keeps the set-group-ID bit, which gives new files the folder's group.
  const mode_t rest = status.st_mode & 07000;
  if (const mode_t mode = folder.st_mode & bits; (status.st_mode & bits) != mode)
    (void)!::fchmod(descriptor, rest | mode);
}

}  // namespace lockstep
