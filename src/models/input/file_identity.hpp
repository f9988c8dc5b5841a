// Which file it was that was read, so that it can be told whether a path still names it as it was.
#pragma once

#include <cstdint>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/base/descriptor.hpp"

namespace lockstep {

struct FileIdentity {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t seconds = 0, nanoseconds = 0;  ///< when it was changed

  bool operator==(const FileIdentity&) const = default;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(FileIdentity, device, inode, bytes, seconds, nanoseconds)
};

/// What the system tells of a file that is open. Whoever changes its bytes changes this, except within a tick of the
/// file system's clock; so does whoever changes its links or its mode.
struct FileState {
  FileIdentity identity;
  std::int64_t seconds = 0, nanoseconds = 0;  ///< when its bytes or what is known of it were changed (ctime)

  bool operator==(const FileState&) const = default;

  /// Whether another change may leave it as it is: the last one was in this tick of the clock.
  bool is_fresh() const;
};

/// ConfigError, which names `path`, if the system does not tell.
FileState state_of(const Descriptor& file, const std::filesystem::path& path);
FileIdentity identity_of(const Descriptor& file, const std::filesystem::path& path);
FileIdentity identity_of(const std::filesystem::path& path);

/// Opens the file. ConfigError if it cannot be opened, or is another one.
Descriptor open_again(const std::filesystem::path& path, const FileIdentity& identity);

}  // namespace lockstep
