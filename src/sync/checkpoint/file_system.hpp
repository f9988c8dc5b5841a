// What some file systems lack, and checkpoints can do without: links, locks, folders that can be synced, and names that
// a rename replaces. Each costs one warning.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <lockstep/core/base/error.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// What a file system lacks, for those who can do without.
class UnsupportedError : public CheckpointError {
 public:
  UnsupportedError(const std::string& what, int code) : CheckpointError{what}, code_{code} {}
  int code() const { return code_; }

 private:
  int code_;
};

/// Whether this error number of a call that has what it needs says that the file system, or its server, does not offer
/// the call. Others, such as ENOSPC and EIO, are failures.
bool is_unsupported(int error);

/// Logs "the file system of PATH LACKS (TEXT of the error): SO" once for each file system and `lacks`.
void warn_of_lack(const std::filesystem::path& path, std::string_view lacks, int error, std::string_view so);

/// Makes what was written to the open file at `path` survive a crash of the machine, on file systems that can. False,
/// with errno, if that fails.
bool sync_file(int descriptor, const std::filesystem::path& path);

/// The same for the names in a folder.
bool sync_folder(const std::filesystem::path& folder);

/// Moves `from` to `to`, in the place of a file or link that is there: at once or, where the file system cannot, after
/// moving that away. False, with errno, if that fails; then what was at `to` is there.
bool move_over(const std::filesystem::path& from, const std::filesystem::path& to);

/// Where that is meanwhile: ".NAME.old.part". A process that is killed in between leaves it there.
LOCKSTEP_PARTS_API std::filesystem::path moved_away(const std::filesystem::path& to);

/// Puts back what a killed process has left there, or removes it if something is at `to` again. By whoever writes `to`
/// alone, before it reads what is there.
LOCKSTEP_PARTS_API void finish_move_over(const std::filesystem::path& to);

}  // namespace lockstep
