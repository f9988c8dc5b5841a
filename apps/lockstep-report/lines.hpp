// The lines of a file that another process may be writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::report {

struct Line {
  std::string_view text;    ///< valid during the call; without its line break
  std::int64_t number = 1;  ///< from 1
  /// Whether it has no line break: a run that was killed, or is still writing, may not have written all of it.
  bool may_be_cut = false;
};

/// The text of a file of at most `limit` bytes. ConfigError, naming the path, if it is longer, cannot be read or is no
/// regular file; FileError if the disk fails or memory runs out.
std::string read_whole(const std::filesystem::path& path, std::size_t limit);

/// Calls `use` for each line that is not empty, in order. Reads the file once. ConfigError, naming the path, if it
/// cannot be read, is no regular file, or has a line of more than 16 MiB; FileError as above.
void for_each_line(const std::filesystem::path& path, const std::function<void(const Line&)>& use);

/// What became of the lines of a file.
struct ReadLines {
  std::int64_t used = 0;
  std::int64_t unknown = 0;     ///< of kinds that this version does not know
  std::int64_t unreadable = 0;  ///< apart from a last one that is cut
  std::int64_t first_unreadable = 0;
  bool is_cut = false;  ///< the last one is

  void count_unreadable(const Line& line);
  /// For people, after the file's name; empty if all is well.
  std::string note() const;
};

}  // namespace lockstep::report
