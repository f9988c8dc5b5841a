// Exclusive use of something by one process: a lock on a file, or a lease where the file system has no locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/base/descriptor.hpp"
#include "core/base/parts.hpp"
#include "sync/checkpoint/lease.hpp"

namespace lockstep {

// Locks on files, which end with the process that holds them.

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

/// The use ends with the object or with the process, however that ends. A child that the process has forked keeps the
/// use until it ends or calls exec.
class LOCKSTEP_PARTS_API ExclusiveUse {
 public:
  /// What the locked file holds.
  enum class Content : std::uint8_t {
    holder,  ///< a line about who uses it, in a file that is there for this alone
    own,     ///< its own, which is left as it is
  };

  struct Options {
    std::filesystem::path file;   ///< the file to lock; created if missing
    std::filesystem::path lease;  ///< where a lease would be
    Content content = Content::holder;
    std::string name;                       ///< of what is used, as messages begin: "--checkpoint-dir run1"
    std::string expected;                   ///< as they end: "a folder that …"
    std::chrono::milliseconds patience{0};  ///< how long to wait for another process
    enum class FileSystem : std::uint8_t { as_it_is, without_locks } file_system = FileSystem::as_it_is;
    LeaseTimes lease_times = {};
  };

  /// Blocks for as long as `patience`, or longer while it is not known whether the holder of a lease is alive. Logs
  /// that it waits. ConfigError, which names the holder, if another process uses it; CheckpointError if the file or the
  /// lease cannot be made. On a file system that has neither locks nor what a lease takes, warns once and keeps nobody
  /// away.
  explicit ExclusiveUse(Options options);
  ExclusiveUse(const ExclusiveUse&) = delete;

  /// Call it before a change that no other process may see half done. ConfigError if another process uses it by now:
  /// this one was stopped, and its lease taken, or somebody removed the file. CheckpointError if the file cannot be
  /// locked again. One thread at a time.
  void require();

  /// Throws the same if that is known already. Takes no time. From any thread.
  void require_not_lost() const;

  /// Also locks the file that `descriptor` is open on for writing. Call it once, before that file replaces the locked
  /// one.
  void extend_to(int descriptor);

 private:
  Lease::Attempt attempt();
  FileLocking lock();
  void say_who_holds_it() const;
  std::optional<LockHolder> holder() const;
  [[noreturn]] void refuse() const;

  Options options_;
  Descriptor file_, successor_;  ///< those that are locked, if there is no lease
  std::unique_ptr<Lease> lease_;
  bool is_guarded_ = true;  ///< false on a file system that has neither
};

}  // namespace lockstep
