// How users make files that can be read of those that cannot: parts of commands, for messages.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "core/base/shell_word.hpp"
#include "models/input/file_bytes.hpp"

namespace lockstep {

/// A name for what is made of `file`: beside it, with `end` in the place of its extension. No file has it, so that the
/// command replaces none, least of all the one that it reads.
inline std::string converted_name(const std::filesystem::path& file, std::string_view end) {
  std::filesystem::path stem = file.stem();
  if (file.extension() == ".gz") stem = stem.stem();
  const std::string begin = (file.parent_path() / stem).string();
  std::string name = fmt::format("{}{}", begin, end);
  std::error_code unknown;
  for (int number = 2; std::filesystem::exists(std::filesystem::symlink_status(name, unknown)); ++number)
    name = fmt::format("{}-{}{}", begin, number, end);
  return name;
}

/// The shell's line that makes a file of that name out of `file`, unpacked, with a command that reads its input.
inline std::string filtered(const FileBytes& file, std::string_view command, std::string_view end) {
  const std::string from = shell_word(file.path().string()), to = shell_word(converted_name(file.path(), end));
  return file.packed() ? fmt::format("zcat < {} | {} > {}", from, command, to)
                       : fmt::format("{} < {} > {}", command, from, to);
}

/// `text` as a string of Python.
inline std::string python_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace lockstep
