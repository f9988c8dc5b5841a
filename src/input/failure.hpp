// Faults of a data file, each in one line.
#pragma once

#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

namespace lockstep {

/// Throws ConfigError "PATH: WHAT".
[[noreturn]] inline void fail_file(const std::filesystem::path& path, std::string_view what) {
  throw ConfigError{fmt::format("{}: {}", path.string(), what)};
}

}  // namespace lockstep
