// What a path leads to, if that is not the regular file that a user meant.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <sys/stat.h>

#include "core/base/parts.hpp"

namespace lockstep {

/// "a folder", "a pipe", "a socket", "a device", "a symbolic link" or "a regular file".
LOCKSTEP_PARTS_API std::string_view name_of_type(mode_t mode);

/// "is a folder, not a regular file"; empty for a regular file, and where there is nothing that can be looked at.
/// Follows links, and opens nothing, which could block forever.
LOCKSTEP_PARTS_API std::string why_not_regular(const std::filesystem::path& path);

}  // namespace lockstep
