// The bytes of a file in order, unpacked if the file is gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

#include "core/base/descriptor.hpp"
#include "models/input/file_identity.hpp"

namespace lockstep {

/// Reads through zlib's inflate rather than its gzread, which ignores bytes after the packed data.
class FileBytes {
 public:
  /// ConfigError if the file cannot be opened.
  explicit FileBytes(const std::filesystem::path& path);
  FileBytes(const FileBytes&) = delete;
  ~FileBytes();

  /// Reads the next bytes; fewer than `to` holds only at the end. Packed data is checked when its end is read, so a
  /// reader asks for one byte more than it expects. ConfigError if the file cannot be read, if it has been written to
  /// by its end, or if its packed data is cut short, fails its checksum or is followed by something else than zeros.
  std::size_t read(std::span<std::uint8_t> to);

  bool packed() const { return packed_; }

  /// A digest of each chunk of an unpacked file that has been read so far, in the order of the file. All chunks are of
  /// `chunk_bytes`, but for the last one of the file.
  const std::vector<std::uint64_t>& chunk_digests() const { return chunk_digests_; }
  static constexpr std::size_t chunk_bytes = std::size_t{64} << 10;

  const std::filesystem::path& path() const { return path_; }

  /// What was known of the file before its first byte was read.
  const FileState& state() const { return state_; }

  /// Another descriptor of the open file, to read parts of it again. ConfigError if the process may have no more.
  Descriptor duplicate() const;

  /// Throws a ConfigError that begins with the file's path.
  [[noreturn]] void fail(const std::string& what) const;

  /// No more bytes than these come, if the file stays as it is: known without reading it.
  std::uint64_t most_bytes() const;

  /// Empty, with memory for `bytes`. ConfigError if this process cannot have that much: the system may promise it, and
  /// end processes that use it.
  std::vector<std::uint8_t> room_for(std::uint64_t bytes) const;

 private:
  /// Reads more of the file into the consumed input buffer. Leaves it empty at the end of the file.
  void refill();
  std::size_t read_plain(std::span<std::uint8_t> to);
  std::size_t read_packed(std::span<std::uint8_t> to);
  /// Called after one piece of packed data: the file ends, or another piece follows.
  void end_or_next_piece();
  void end_after_zeros();

  std::filesystem::path path_;
  Descriptor file_;
  FileState state_;
  std::vector<std::uint8_t> buffer_;  // a chunk of the file at a time
  std::vector<std::uint64_t> chunk_digests_;
  z_stream stream_{};  // its input is the unread part of buffer_, packed or not
  bool packed_ = false;
  bool ended_ = false;
};

/// All bytes that come from `file`, of which none has been read; nothing if they are more than `limit`. ConfigError as
/// read, and if the file becomes longer or shorter meanwhile. Memory is taken for what is there: up to 1 MiB more while
/// packed data is unpacked, and twice as much for a moment afterwards.
std::optional<std::vector<std::uint8_t>> read_all(FileBytes& file, std::uint64_t limit);

/// All bytes of a file of at most `limit` bytes, unpacked. ConfigError where it holds more; `expected` says of what
/// there may be so many.
std::vector<std::uint8_t> read_whole_file(const std::filesystem::path& path, std::uint64_t limit,
                                          std::string_view expected);

}  // namespace lockstep
