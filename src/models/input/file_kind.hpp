// What a file is, by its first bytes: for messages to users who named the wrong one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// A kind of file that nothing here reads.
struct FileKind {
  std::string name;          ///< "an xz archive"
  std::string as_rows = {};  ///< how it becomes a table or arrays: commands, or lines of Python; empty if nothing does
  std::string as_text = {};  ///< how it becomes a text
};

/// The kind of `file`, which begins with `first`; empty if that is not known. 512 bytes tell all kinds.
std::optional<FileKind> kind_of(std::span<const std::uint8_t> first, const std::filesystem::path& file);

/// Whether `first` has no control character other than those of texts.
bool is_text(std::span<const std::uint8_t> first);

/// As kind_of, of a file, unpacked if it is gzip. Empty if it cannot be read, too.
std::optional<FileKind> kind_of_file(const std::filesystem::path& file);

/// "; this is an xz archive: xz -dk FILE" for a file that is to be read as rows or images; empty if its first bytes say
/// nothing, or cannot be read.
std::string hint_for_kind(const std::filesystem::path& file);

/// The same of a file in the place of a folder, and of what is read elsewhere: "; this is a text, which trains --model
/// gpt".
std::string hint_for_file(const std::filesystem::path& file);

/// ConfigError if a byte is 0, which no text has. `bytes` begin at byte `first` of the file.
void require_no_zero_byte(const std::filesystem::path& file, std::span<const std::uint8_t> bytes, std::int64_t first);

}  // namespace lockstep
