// A file to which a run adds, and which others may remove, rename or cut meanwhile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/descriptor.hpp"

namespace lockstep {

/// `name` names the file in messages. Every failure is a FileError.
class KeptFile {
 public:
  /// `file` is open on `path`, for writing at its end.
  KeptFile(Descriptor file, std::filesystem::path path, std::string name);

  /// A regular file, which is made and shared (open_shared) if it is not there.
  KeptFile(std::filesystem::path path, std::string name);

  /// Writes all of it, at the end.
  void write(std::string_view text);

  /// The same, or nothing of it if that fails.
  void write_in_one_piece(std::string_view text);

  /// Leaves the first bytes.
  void cut(std::uint64_t bytes);

  /// Whether the path leads to the file, or the file is none that has a place: a pipe, a device.
  bool is_in_place() const;

  /// FileError if the path does not lead to the file, so that what was written is not where it should be.
  void require_in_place() const;

  const Descriptor& descriptor() const { return file_; }

 private:
  Descriptor file_;
  std::filesystem::path path_;  ///< absolute, so that it stays the same if the program goes elsewhere
  std::string name_;
};

}  // namespace lockstep
