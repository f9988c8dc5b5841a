// Files that this project wrote, which it may replace, and those of others, which it may not.
#pragma once

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/base/parts.hpp"

namespace lockstep {

/// ConfigError "NAME: holds something else, which would be lost; expected EXPECTED" if there is a regular file
/// at `path` with something in it which, after `skipped` bytes, begins as none of `beginnings` does. FileError, which
/// begins with `name`, if it cannot be read.
LOCKSTEP_PARTS_API void require_own(const std::filesystem::path& path,
                                    std::initializer_list<std::string_view> beginnings, std::string_view name,
                                    std::string_view expected, std::size_t skipped = 0);

}  // namespace lockstep
