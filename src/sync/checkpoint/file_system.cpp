#include "sync/checkpoint/file_system.hpp"

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/descriptor.hpp"
#include "core/base/file_io.hpp"
#include "core/base/system_error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// What this process has told.
class ToldLacks {
 public:
  /// Whether it is the first time.
  bool add(dev_t file_system, std::string_view lacks) {
    const std::scoped_lock lock{mutex_};
    return told_.emplace(file_system, lacks).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<dev_t, std::string>> told_;
};

ToldLacks& told_lacks() {
  static ToldLacks told;
  return told;
}

/// 0, or the error.
int sync(int descriptor) {
  return uninterrupted([descriptor] { return ::fsync(descriptor); }) == 0 ? 0 : errno;
}

bool is_there(const fs::path& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0;
}

bool fail_with(int error) {
  errno = error;
  return false;
}

}  // namespace

bool is_unsupported(int error) {
  switch (error) {
    case ENOSYS:
    case EOPNOTSUPP:
    case EINVAL:
    case EPERM:   // of symlink and of a server that refuses a kind of call
    case EACCES:  // the same
    case EROFS:   // of links in folders that a virtual machine shares
    case EMLINK:
    case ENOLCK: return true;
    default: return false;
  }
}

void warn_of_lack(const fs::path& path, std::string_view lacks, int error, std::string_view so) {
  struct stat status = {};
  if (::stat(path.empty() ? "." : path.c_str(), &status) != 0) status.st_dev = 0;
  if (!told_lacks().add(status.st_dev, lacks)) return;
  fs::path shown = path;
  while (shown.extension() == ".part") shown = shown.parent_path();  // it has another name in a moment
  log::warning(fmt::format("the file system of {} {} ({}): {}", shown.empty() ? "." : shown.string(), lacks,
                           error_text(error), so));
}

bool sync_file(int descriptor, const fs::path& path) {
  const int error = sync(descriptor);
  if (error == 0) return true;
  if (!is_unsupported(error)) return fail_with(error);
  warn_of_lack(path.parent_path(), "cannot sync files", error,
               "what is written may not survive a crash of the machine");
  return true;
}

bool sync_folder(const fs::path& folder) {
  const fs::path path = folder.empty() ? "." : folder;
  const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  const int error = descriptor.get() < 0 ? errno : sync(descriptor.get());
  if (error == 0) return true;
  // Some have the call, and want a folder that is open for writing, which no folder can be.
  if (!is_unsupported(error) && error != EBADF && error != EISDIR) return fail_with(error);
  warn_of_lack(path, "cannot sync folders", error, "the newest names in it may not survive a crash of the machine");
  return true;
}

bool move_over(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return true;
  const int error = errno;
  if ((!is_unsupported(error) && error != EEXIST) || !is_there(to)) return fail_with(error);
  const fs::path away = moved_away(to);
  finish_move_over(to);
  if (::rename(to.c_str(), away.c_str()) != 0) return fail_with(error);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    (void)::rename(away.c_str(), to.c_str());
    return fail_with(error);
  }
  ::unlink(away.c_str());
  warn_of_lack(to.parent_path(), "cannot replace a name atomically", error,
               "a file that is replaced is missing for a moment");
  return true;
}

fs::path moved_away(const fs::path& to) {
  return to.parent_path() / fmt::format(".{}.old.part", to.filename().string());
}

void finish_move_over(const fs::path& to) {
  const fs::path away = moved_away(to);
  if (!is_there(away)) return;
  std::error_code ignored;
  if (is_there(to))
    fs::remove_all(away, ignored);
  else
    ::rename(away.c_str(), to.c_str());  // if that fails, it is the only one
}

}  // namespace lockstep
