#include "sync/checkpoint/folder.hpp"

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"
#include "core/base/file_type.hpp"
#include "core/base/system_error.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/file_system.hpp"

namespace lockstep {
namespace {

std::filesystem::path part_of(const std::filesystem::path& path) {
  return path.parent_path() / fmt::format(".{}.part", path.filename().string());
}

void remove_quietly(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

/// Both must exist. Some file systems cannot: there the old folder is gone for a moment, though never before the new
/// one is complete. False, with errno, if that fails; then `other` is there.
bool exchange(const std::filesystem::path& one, const std::filesystem::path& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (!is_unsupported(errno)) return false;
  const std::filesystem::path aside = moved_away(other);
  if (::rename(other.c_str(), aside.c_str()) != 0) return false;
  if (::rename(one.c_str(), other.c_str()) != 0) {
    const int error = errno;
    (void)::rename(aside.c_str(), other.c_str());
    errno = error;
    return false;
  }
  return ::rename(aside.c_str(), one.c_str()) == 0;
}

}  // namespace

void require_writable_folder(const std::filesystem::path& folder, const std::string& name) {
  const auto fail = [&](std::string_view what) { throw ConfigError{fmt::format("{}: {}", name, what)}; };
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  struct stat status = {};
  if (::stat(folder.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
    fail(fmt::format("is {}; expected a folder that can be written", name_of_type(status.st_mode)));
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error = {errno, std::generic_category()};
  if (error && !is_about_path(error.value())) throw FileError{name, "written", error.value()};
  if (error) fail(error.message() + "; expected a folder that can be written");
}

NewFolder::NewFolder(std::filesystem::path path) : path_{std::move(path)}, part_{part_of(path_)} {
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  remove_quietly(part_);
  constexpr mode_t as_the_user_allows = 0777;
  if (error) {
    errno = error.value();
    fail("made");
  }
  if (::mkdir(part_.c_str(), as_the_user_allows) != 0) fail("made");
}

NewFolder::~NewFolder() {
  remove_quietly(part_);
}

void NewFolder::commit() {
  if (!sync_folder(part_)) fail("written");
  std::error_code ignored;
  const bool exists = std::filesystem::exists(std::filesystem::symlink_status(path_, ignored));
  if (exists ? !exchange(part_, path_) : ::rename(part_.c_str(), path_.c_str()) != 0) fail("put in its place");
  if (!sync_folder(path_.parent_path())) fail("put in its place for good");
}

void NewFolder::fail(std::string_view doing) const {
  fail_checkpoint(path_.string(), fmt::format("cannot be {}: {}", doing, error_text(errno)));
}

void switch_link(const std::filesystem::path& link, const std::string& target) {
  const std::filesystem::path part = part_of(link);
  remove_quietly(part);
  const auto fail = [&](int error) {
    remove_quietly(part);
    fail_checkpoint(link.string(), fmt::format("cannot be made to point to {}: {}", target, error_text(error)));
  };
  if (::symlink(target.c_str(), part.c_str()) != 0) {
    const int error = errno;
    if (!is_unsupported(error)) fail(error);
    warn_of_lack(link.parent_path(), "has no symbolic links", error,
                 "checkpoints are found without 'latest' and 'best'");
    remove_link(link);  // an old one would lead to another checkpoint
    return;
  }
  if (!move_over(part, link) || !sync_folder(link.parent_path())) fail(errno);
}

void remove_link(const std::filesystem::path& link) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(link, ignored))) ::unlink(link.c_str());
}

std::string remove_folder(const std::filesystem::path& path) {
  const std::filesystem::path part = part_of(path);
  remove_quietly(part);
  std::error_code error;
  std::filesystem::rename(path, part, error);
  if (!error) std::filesystem::remove_all(part, error);
  return error ? fmt::format("{} cannot be removed: {}", path.string(), error.message()) : std::string{};
}

}  // namespace lockstep
