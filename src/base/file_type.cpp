#include "base/file_type.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
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

std::FILE* open_output(const std::filesystem::path& path, OpenOutput how, std::string& why) {
  constexpr mode_t as_the_user_allows = 0666;
  const bool is_new = how == OpenOutput::empty;
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (is_new ? O_TRUNC : O_APPEND);
  // Otherwise, opening a pipe waits for a reader.
  const int file = ::open(path.c_str(), flags | O_NONBLOCK, as_the_user_allows);
  if (file >= 0) {
    ::fcntl(file, F_SETFL, flags);
    return ::fdopen(file, is_new ? "w" : "a");
  }
  struct stat status = {};
  why = std::strerror(errno);
  if (errno == ENXIO && ::stat(path.c_str(), &status) == 0)
    why = fmt::format("is {} that nobody reads", name_of_type(status.st_mode));
  return nullptr;
}

}  // namespace lockstep
