// Faults of a data file, each in one line.
#pragma once

#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"

namespace lockstep {

/// Throws ConfigError "PATH: WHAT".
[[noreturn]] inline void fail_file(const std::filesystem::path& path, std::string_view what) {
  throw ConfigError{fmt::format("{}: {}", path.string(), what)};
}

/// What `call` returns. A file of data that cannot be read is wrong input, so a FileError becomes a ConfigError.
template <class Call>
auto as_input(Call&& call) {
  try {
    return call();
  } catch (const FileError& error) {
    throw ConfigError{error.what()};
  }
}

}  // namespace lockstep
