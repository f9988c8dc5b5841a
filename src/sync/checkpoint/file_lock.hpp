// Locks on files, which end with the process that holds them.
#pragma once

#include <cstdint>

namespace lockstep {

/// What came of an attempt to lock a file.
enum class FileLocking : std::uint8_t {
  locked,
  held,         ///< by another open file, of this process or any other, on any host
  unsupported,  ///< the file system has no such locks
};

/// The bytes of a file that are locked one by one, whether the file has them or not.
enum class LockedByte : std::uint8_t {
  use,     ///< whoever locks it uses what the file stands for
  holder,  ///< it is locked while the file says who that is
};

/// LOCAL, does not wait. The lock belongs to the open file that `descriptor` names, which is open for writing. It ends
/// when the last descriptor of that open file is closed, so no killed process leaves one. A child that it has forked
/// keeps the lock until it ends or calls exec.
FileLocking lock_file(int descriptor, LockedByte byte);

/// Whether another open file holds the lock.
bool is_locked(int descriptor, LockedByte byte);

/// Whether `descriptor` is open on what is called `path` now.
bool is_open_on(int descriptor, const char* path);

}  // namespace lockstep
