#include "sync/checkpoint/checkpoint_reading.hpp"

#include <cerrno>
#include <system_error>

#include <sys/stat.h>

#include "core/base/file_io.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Nothing if no checkpoint in `folder` says which one is the best, or that one is not there.
std::optional<fs::path> best_in(const fs::path& folder) {
  const auto newest = read_newest(folder, read_manifest, [](const CheckpointError&) {});
  if (!newest || !newest->best) return std::nullopt;
  const fs::path best = folder / checkpoint_name(newest->best->step);
  return folder_identity(best) ? std::optional{best} : std::nullopt;
}

/// As if there were such a link. Nothing if there is no such checkpoint.
std::optional<fs::path> without_link(const fs::path& path) {
  const auto have_manifest = [](const fs::path& checkpoint) { return (void)read_manifest(checkpoint), checkpoint; };
  try {
    if (path.filename() == best_link) return best_in(path.parent_path());
    if (path.filename() == latest_link)
      return read_newest(path.parent_path(), have_manifest, [](const CheckpointError&) {});
  } catch (const CheckpointError&) {
    // Whoever reads `path` says what is wrong.
  }
  return std::nullopt;
}

}  // namespace

std::optional<FolderIdentity> folder_identity(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FolderIdentity{status.st_dev, status.st_ino};
}

bool is_read_failure(const CheckpointError& error) {
  const auto* const of_file = dynamic_cast<const FileError*>(&error);
  if (!of_file) return false;
  switch (of_file->code()) {
    case 0:  // it is no regular file
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP: return false;
    default: return true;
  }
}

bool is_gone(const fs::path& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

fs::path checkpoint_at(const fs::path& named) {
  const fs::path path = named.has_filename() ? named : named.parent_path();  // without a slash at its end
  std::error_code none;
  const fs::path target = fs::read_symlink(path, none);
  const fs::path found = none ? path : path.parent_path() / target;
  return folder_identity(found) ? found : without_link(path).value_or(path);
}

}  // namespace lockstep
