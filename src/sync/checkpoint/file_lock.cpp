// Locks on files, of exclusive_use.hpp.
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file_io.hpp"
#include "sync/checkpoint/exclusive_use.hpp"

namespace lockstep {
namespace {

struct flock exclusive(LockedByte byte) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  return lock;
}

}  // namespace

FileLocking lock_file(int descriptor, LockedByte byte) {
  struct flock lock = exclusive(byte);
  if (uninterrupted([&] { return ::fcntl(descriptor, F_OFD_SETLK, &lock); }) == 0) return FileLocking::locked;
  // Some servers refuse any lock with the number that others have for one that is held.
  if (errno == EACCES) return is_locked(descriptor, byte) ? FileLocking::held : FileLocking::unsupported;
  // Whatever else the system says (ENOLCK, ENOTSUP, ENOSYS, EINVAL; EIO if a server does not answer) is no lock.
  return errno == EAGAIN ? FileLocking::held : FileLocking::unsupported;
}

bool is_locked(int descriptor, LockedByte byte) {
  struct flock lock = exclusive(byte);
  return ::fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool is_open_on(int descriptor, const char* path) {
  struct stat open = {}, named = {};
  return ::fstat(descriptor, &open) == 0 && ::stat(path, &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

}  // namespace lockstep
