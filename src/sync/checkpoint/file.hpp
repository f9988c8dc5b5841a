// Files that appear as a whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/base/descriptor.hpp"
#include "core/base/parts.hpp"

namespace lockstep {

/// A file on its way to `path`: written beside it, under the name ".NAME.part", and moved there by `commit`. Without a
/// commit it is removed, and what was at `path` stays. What a killed process left beside it is removed or put back
/// first. No link is followed: one at `path` is replaced, and what it leads to stays. Every failure is a FileError.
class LOCKSTEP_PARTS_API NewFile {
 public:
  /// Messages begin with `what` and the path.
  explicit NewFile(std::filesystem::path path, std::string what = "checkpoint");
  NewFile(const NewFile&) = delete;
  ~NewFile();

  void write(std::span<const std::byte> bytes);

  /// The open file. Valid as long as the object.
  int descriptor() const { return descriptor_.get(); }

  /// Returns when the file would survive a crash of the machine.
  void commit();

 private:
  std::filesystem::path path_;
  std::string name_;
  std::filesystem::path part_;
  Descriptor descriptor_;
  bool committed_ = false;
};

/// A regular file that exists. Every failure is a FileError.
class ExistingFile {
 public:
  explicit ExistingFile(const std::filesystem::path& path);

  std::uint64_t size() const { return size_; }

  /// Fills `bytes` from `offset` on. The file must be long enough.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string name_;
  Descriptor descriptor_;
  std::uint64_t size_;
};

}  // namespace lockstep
