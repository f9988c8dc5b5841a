// Files that are read and written whole. An end is an end only if nothing failed, and what a message says is what the
// call that failed has said.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/error.hpp>

#include "core/base/descriptor.hpp"
#include "core/base/memory_use.hpp"
#include "core/base/parts.hpp"

namespace lockstep {

/// A file could not be opened, read or written. A reader for whom that is wrong input throws a ConfigError in its
/// place.
class LOCKSTEP_PARTS_API FileError : public CheckpointError {
 public:
  /// "NAME: cannot be DONE: TEXT", with the system's text about the error number `code`.
  FileError(std::string_view name, std::string_view done, int code);

  /// "NAME: WRONG", about a file that is not what was expected, or in other words than the system's.
  FileError(std::string_view name, std::string_view wrong);
  FileError(std::string_view name, int code, std::string_view wrong);

  /// Of the call that failed; 0 if none did.
  int code() const { return code_; }

 private:
  int code_;
};

/// Whether the error number says that the disk, or the user's share of it, is full.
inline bool is_full(int code) {
  return code == ENOSPC || code == EDQUOT;
}

/// Whether a path leads to what its user can mend, such as a folder that is not there or may not be written. Otherwise
/// the disk is full or broken, or the system has no memory.
LOCKSTEP_PARTS_API bool is_about_path(int code);

/// Repeats a system call until no signal interrupts it.
template <class Call>
auto uninterrupted(Call&& call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// `name` is how messages name the file. Every failure is a FileError.

/// Opens a regular file for reading, through links. Does not wait, whatever the path leads to.
LOCKSTEP_PARTS_API Descriptor open_to_read(const std::filesystem::path& path, std::string_view name);

/// The same; nothing if there is no such file.
LOCKSTEP_PARTS_API std::optional<Descriptor> find_to_read(const std::filesystem::path& path, std::string_view name);

/// Reads the next bytes, or those at `offset`. Returns how many: fewer than `to` holds only at the end of the file.
LOCKSTEP_PARTS_API std::size_t read_next(const Descriptor& file, std::span<std::byte> to, std::string_view name);
LOCKSTEP_PARTS_API std::size_t read_at(const Descriptor& file, std::uint64_t offset, std::span<std::byte> to,
                                       std::string_view name);

/// What is left to read, which may be at most `limit` bytes; EFBIG if it is more.
LOCKSTEP_PARTS_API std::string read_text(const Descriptor& file, std::size_t limit, std::string_view name);

/// Whether an output file is emptied when it is opened, or written on at its end.
enum class OpenOutput { empty, at_end };

/// Opens `path` for writing at its end, and makes it if it is not there. A device or a pipe that somebody reads will do
/// as well.
LOCKSTEP_PARTS_API Descriptor open_output(const std::filesystem::path& path, OpenOutput how, std::string_view name);

/// What `call` returns, which makes something of the file. If the memory for that runs out, that is a FileError.
template <class Call>
auto with_memory(std::string_view name, Call&& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    throw FileError{name, ENOMEM, "cannot be read: out of memory: " + why_no_memory()};
  }
}

/// Writes all bytes.
LOCKSTEP_PARTS_API void write_all(const Descriptor& file, std::string_view bytes, std::string_view name);

/// Reads a file line by line, in memory for a line.
class LOCKSTEP_PARTS_API LineReader {
 public:
  struct Line {
    std::string_view text;    ///< without its line break; valid until the next call
    std::int64_t number = 0;  ///< from 1
    /// Whether it has a line break. The last one of a file may not: its writer may have been killed.
    bool is_whole = true;
  };

  LineReader(Descriptor file, std::string name, std::size_t longest_line);

  /// Nothing at the end of the file. FileError, with the number of the line and EFBIG, if it is longer than
  /// `longest_line`.
  std::optional<Line> next();

 private:
  /// False at the end of the file.
  bool read_more();

  Descriptor file_;
  std::string name_;
  std::size_t longest_line_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  ///< what is held in buffer_, and no line yet
  std::int64_t number_ = 0;
};

}  // namespace lockstep
