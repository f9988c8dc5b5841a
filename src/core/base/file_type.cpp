#include "core/base/file_type.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string_view name_of_type(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return "a regular file";
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    case S_IFLNK: return "a symbolic link";
    default: return "a device";
  }
}

std::string why_not_regular(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return {};
  return fmt::format("is {}, not a regular file", name_of_type(status.st_mode));
}

}  // namespace lockstep
