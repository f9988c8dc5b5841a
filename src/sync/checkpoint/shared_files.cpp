#include "sync/checkpoint/shared_files.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file_io.hpp"

namespace lockstep {

void share_with_writers_of_folder(int descriptor, const std::filesystem::path& path) {
  struct stat folder = {}, status = {};
  if (::stat(path.has_parent_path() ? path.parent_path().c_str() : ".", &folder) != 0) return;
  if (::fstat(descriptor, &status) != 0 || status.st_uid != ::geteuid()) return;
  // What root makes in a user's folder is the user's, who could not write to it otherwise.
  if (status.st_uid == 0 && folder.st_uid != 0) (void)!::fchown(descriptor, folder.st_uid, folder.st_gid);
  const mode_t bits = S_ISDIR(status.st_mode) ? 0777 : 0666;
  // Keeps the set-group-ID bit, which gives new files the folder's group.
  const mode_t rest = status.st_mode & 07000;
  if (const mode_t mode = folder.st_mode & bits; (status.st_mode & bits) != mode)
    (void)!::fchmod(descriptor, rest | mode);
}

Descriptor open_shared(const std::filesystem::path& path, int flags) {
  constexpr mode_t as_the_user_allows = 0666;
  // A link would lead to a file of somebody else. Without O_NONBLOCK, opening a pipe would block.
  flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  while (true) {
    const auto open = [&](int how) {
      return uninterrupted([&] { return ::open(path.c_str(), how, as_the_user_allows); });
    };
    if (Descriptor made{open(flags | O_CREAT | O_EXCL)}; made.get() >= 0) {
      share_with_writers_of_folder(made.get(), path);
      return made;
    }
    if (errno != EEXIST) return Descriptor{};
    // Who may write to the folder may have moved any file of this user's here.
    Descriptor found{open(flags)};
    if (found.get() >= 0 || errno != ENOENT) return found;
  }
}

}  // namespace lockstep
