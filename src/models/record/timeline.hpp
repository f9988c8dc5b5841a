// What happened to a run, and when: one JSON object per line, over all its starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "core/base/foreign_json.hpp"
#include "models/record/kept_file.hpp"

namespace lockstep {

/// Adds lines to the file, each in one piece:
///   {"kind","time","start",…}
/// with the time in seconds since 1970. Failures are a CheckpointError that begins with `name`. One at a time, under
/// the lock of the run's folder.
class Timeline {
 public:
  /// What there is to keep.
  struct Kept {
    std::uint64_t bytes = 0;  ///< of whole lines
    std::int64_t start = 0;   ///< the last
    bool is_whole = true;     ///< whether nothing comes after them
  };

  /// Reads what is there. ConfigError for a file of something else.
  static Kept find(const std::filesystem::path& path, const std::string& name);

  /// Makes the file if it is not there. What is left of a line that was cut off is removed. `name` names the file in
  /// messages: "--run-dir run1/timeline.jsonl".
  Timeline(const std::filesystem::path& path, const std::string& name, const Kept& kept);
  Timeline(const std::filesystem::path& path, const std::string& name) : Timeline{path, name, find(path, name)} {}

  /// The number of the start that lines are about: at first that of the last one in the file, 0 if there is none.
  std::int64_t start() const { return start_; }
  void set_start(std::int64_t start) { start_ = start; }

  /// `fields` is an object.
  void add(std::string_view kind, const OrderedJson& fields);

  /// The number by which the file system knows the file.
  ino_t inode() const;

  const KeptFile& file() const { return file_; }

 private:
  KeptFile file_;
  std::int64_t start_;
};

/// A line as `Timeline::add` writes it, for now.
std::string timeline_line(std::string_view kind, std::int64_t start, const OrderedJson& fields);

/// A failure, for `timeline_line`.
OrderedJson failure_fields(std::string_view line, int exit_code);

/// The lines of a timeline that are whole, from the byte `first` of the file on. Lines of no known form are left out.
/// None if there is no file. FileError if it cannot be read.
std::vector<OrderedJson> read_timeline(const std::filesystem::path& path, std::uint64_t first = 0);

}  // namespace lockstep
