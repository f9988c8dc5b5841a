// The bytes of a file in order, unpacked if the file is gzip.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <zlib.h>

namespace lockstep {

/// Reads through zlib's inflate rather than its gzread, which ignores bytes after the packed data.
class FileBytes {
 public:
  /// ConfigError if the file cannot be opened.
  explicit FileBytes(const std::filesystem::path& path);
  FileBytes(const FileBytes&) = delete;
  ~FileBytes();

  /// Reads the next bytes; fewer than `to` holds only at the end. Packed data is checked when its end is read, so a
  /// reader asks for one byte more than it expects. ConfigError if the file cannot be read, or if its packed data is
  /// cut short, fails its checksum or is followed by something else.
  std::size_t read(std::span<std::uint8_t> to);

  bool packed() const { return packed_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  /// Reads more of the file into the consumed input buffer. Leaves it empty at the end of the file.
  void refill();
  std::size_t read_plain(std::span<std::uint8_t> to);
  std::size_t read_packed(std::span<std::uint8_t> to);
  /// Called after one piece of packed data: the file ends, or another piece follows.
  void end_or_next_piece();
  [[noreturn]] void fail(const std::string& what) const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<std::uint8_t> buffer_;
  z_stream stream_{};  // its input is the unread part of buffer_, packed or not
  bool packed_ = false;
  bool ended_ = false;
};

}  // namespace lockstep
