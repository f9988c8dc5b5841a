#include "models/record/kept_file.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file_io.hpp"
#include "core/base/file_type.hpp"
#include "sync/checkpoint/shared_files.hpp"

namespace lockstep {
namespace {

Descriptor open_to_add(const std::filesystem::path& path, const std::string& name) {
  Descriptor file = open_shared(path, O_WRONLY | O_APPEND);
  const int code = errno;
  struct stat status = {};
  if (file.get() < 0) {
    if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
      throw FileError{name, fmt::format("is {}, not a regular file", name_of_type(status.st_mode))};
    throw FileError{name, "written", code};
  }
  if (::fstat(file.get(), &status) != 0) throw FileError{name, "written", errno};
  if (!S_ISREG(status.st_mode))
    throw FileError{name, fmt::format("is {}, not a regular file", name_of_type(status.st_mode))};
  return file;
}

}  // namespace

KeptFile::KeptFile(Descriptor file, std::filesystem::path path, std::string name)
    : file_{std::move(file)}, path_{std::filesystem::absolute(path)}, name_{std::move(name)} {}

KeptFile::KeptFile(std::filesystem::path path, std::string name)
    : file_{open_to_add(path, name)}, path_{std::filesystem::absolute(path)}, name_{std::move(name)} {}

void KeptFile::write(std::string_view text) {
  write_all(file_, text, name_);
}

void KeptFile::write_in_one_piece(std::string_view text) {
  struct stat before = {};
  const bool known = ::fstat(file_.get(), &before) == 0;
  try {
    write_all(file_, text, name_);
  } catch (const FileError&) {
    if (known) (void)!::ftruncate(file_.get(), before.st_size);
    throw;
  }
}

void KeptFile::cut(std::uint64_t bytes) {
  if (uninterrupted([&] { return ::ftruncate(file_.get(), static_cast<off_t>(bytes)); }) != 0)
    throw FileError{name_, "cut", errno};
}

bool KeptFile::is_in_place() const {
  struct stat open = {}, named = {};
  if (::fstat(file_.get(), &open) != 0 || !S_ISREG(open.st_mode)) return true;
  // Of a file system that fails, nothing is known.
  if (::stat(path_.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

void KeptFile::require_in_place() const {
  if (!is_in_place()) throw FileError{name_, "was removed, renamed or replaced while the run wrote to it"};
}

}  // namespace lockstep
