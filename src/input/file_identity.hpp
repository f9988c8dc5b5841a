// Which file it was that was read, so that it can be told whether a path still names it as it was.
#pragma once

#include <cstdint>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/descriptor.hpp"

namespace lockstep {

struct FileIdentity {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t seconds = 0, nanoseconds = 0;  ///< when it was changed

  bool operator==(const FileIdentity&) const = default;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(FileIdentity, device, inode, bytes, seconds, nanoseconds)
};

/// ConfigError, which names `path`, if the system does not tell.
FileIdentity identity_of(const Descriptor& file, const std::filesystem::path& path);
FileIdentity identity_of(const std::filesystem::path& path);

/// Opens the file. ConfigError if it cannot be opened, or is another one.
Descriptor open_again(const std::filesystem::path& path, const FileIdentity& identity);

}  // namespace lockstep
