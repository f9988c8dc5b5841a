// What a path leads to, if that is not the regular file that a user meant.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include <sys/stat.h>

namespace lockstep {

/// "a folder", "a pipe", "a socket", "a device", "a symbolic link" or "a regular file".
std::string_view name_of_type(mode_t mode);

/// "is a folder, not a regular file"; empty for a regular file, and where there is nothing that can be looked at.
/// Follows links, and opens nothing, which could block forever.
std::string why_not_regular(const std::filesystem::path& path);

/// Whether an output file is emptied when it is opened, or written on at its end.
enum class OpenOutput { empty, at_end };

/// Opens `path` for writing, and makes it if it is not there. A device or a pipe that somebody reads will do as well.
/// The caller closes it. Null if it fails; then `why` says so, as "No such file or directory" or "is a pipe that nobody
/// reads".
std::FILE* open_output(const std::filesystem::path& path, OpenOutput how, std::string& why);

}  // namespace lockstep
