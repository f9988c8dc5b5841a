#include "sync/checkpoint/file.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file_io.hpp"
#include "core/control/tag.hpp"
#include "sync/checkpoint/file_system.hpp"

namespace lockstep {
namespace {

Descriptor open_file(const std::filesystem::path& path, int flags) {
  constexpr mode_t as_the_user_allows = 0666;
  return Descriptor{uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, as_the_user_allows); })};
}

/// What a killed writer left is removed first. A link that somebody put there is not followed.
Descriptor make_file(const std::filesystem::path& path, const std::string& name) {
  ::unlink(path.c_str());
  Descriptor file = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (file.get() < 0) throw FileError{name, "made", errno};
  return file;
}

}  // namespace

NewFile::NewFile(std::filesystem::path path, std::string what)
    : path_{std::move(path)},
      name_{one_line(fmt::format("{} {}", what, path_.string()))},
      part_{path_.parent_path() / fmt::format(".{}.part", path_.filename().string())},
      descriptor_{make_file(part_, name_)} {
  finish_move_over(path_);
}

NewFile::~NewFile() {
  if (!committed_) ::unlink(part_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes) {
  write_all(descriptor_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name_);
}

void NewFile::commit() {
  if (!sync_file(descriptor_.get(), path_)) throw FileError{name_, "written", errno};
  if (!move_over(part_, path_)) throw FileError{name_, "put in its place", errno};
  committed_ = true;
  if (!sync_folder(path_.parent_path())) throw FileError{name_, "put in its place for good", errno};
}

ExistingFile::ExistingFile(const std::filesystem::path& path)
    : name_{one_line("checkpoint " + path.string())}, descriptor_{open_to_read(path, name_)} {
  struct stat status = {};
  if (::fstat(descriptor_.get(), &status) != 0) throw FileError{name_, "read", errno};
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void ExistingFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  if (read_at(descriptor_, offset, bytes, name_) < bytes.size())
    throw FileError{name_, "became shorter while it was read"};
}

}  // namespace lockstep
