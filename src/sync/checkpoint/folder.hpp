// Folders that appear as a whole or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/parts.hpp"

namespace lockstep {

/// A folder on its way to `path`: filled beside it, under the name ".NAME.part", and moved there by `commit`. Without a
/// commit it is removed, and what was at `path` stays. What a killed process left under that name is removed first.
/// Every failure is a CheckpointError.
class NewFolder {
 public:
  /// Makes the folders above it too.
  explicit NewFolder(std::filesystem::path path);
  NewFolder(const NewFolder&) = delete;
  ~NewFolder();

  /// Where to make its files.
  const std::filesystem::path& part() const { return part_; }

  /// Returns when the folder would survive a crash of the machine. If there was one at `path`, exchanges the two and
  /// removes the old one.
  void commit();

 private:
  [[noreturn]] void fail(std::string_view doing) const;

  std::filesystem::path path_;
  std::filesystem::path part_;
};

/// Makes `folder` if it is not there. ConfigError, which begins with `name`, if nothing can be written to it;
/// CheckpointError if the disk is full.
LOCKSTEP_PARTS_API void require_writable_folder(const std::filesystem::path& folder, const std::string& name);

/// Makes `link` a symbolic link to `target`, at once, whatever it was before. On a file system without links, warns
/// once, and there is no link afterwards. CheckpointError if it fails otherwise.
void switch_link(const std::filesystem::path& link, const std::string& target);

/// Removes a symbolic link, if `link` is one.
void remove_link(const std::filesystem::path& link);

/// Removes a folder in such a way that nobody finds a part of it under its name. What keeps it from that, in one line;
/// empty if nothing does.
std::string remove_folder(const std::filesystem::path& path);

}  // namespace lockstep
