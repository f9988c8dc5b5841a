// A file that stays where it is, from which parts are read again and again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/descriptor.hpp"
#include "core/base/digest.hpp"
#include "models/input/data_block.hpp"
#include "models/input/file_bytes.hpp"
#include "models/input/file_identity.hpp"
#include "models/input/fixed_array.hpp"

namespace lockstep {

/// LOCAL; several threads may read at once.
class StoredFile {
 public:
  /// A file that has been read to its end.
  static std::shared_ptr<const StoredFile> of(const FileBytes& file);

  /// A file that has not: whoever reads it first reads all of it from `begin` on, in order and on one thread. What
  /// comes before `begin` is not read again.
  static std::shared_ptr<const StoredFile> unread(const FileBytes& file, std::uint64_t begin = 0);

  /// As it was saved. In a block that is an index, nothing has been read: each chunk of the file is compared with its
  /// digest before the first bytes of it are used. ConfigError if the path does not lead to that file any more.
  static std::shared_ptr<const StoredFile> restore(const nlohmann::json& saved, const BlockReader& block);

  nlohmann::json save(BlockWriter& block) const;

  /// Reads `to.size()` bytes at `offset`. ConfigError if they are not there any more, or are others.
  void read(std::uint64_t offset, std::span<std::uint8_t> to) const;

  /// ConfigError unless the file still has the bytes that were read first; it may be longer. Asks the system, and reads
  /// the file again only if that tells of a change: its name, mode and time may change. The system does not tell of a
  /// page that a process had mapped and written before the file was read, until it is written back. One thread at a
  /// time; it shows progress as it reads (progress_count.hpp), since the ranks of other nodes may wait meanwhile.
  void require_unchanged() const;

  /// Whether all of it has been read once.
  bool was_read() const { return !first_reading_; }

  const std::filesystem::path& path() const { return path_; }

 private:
  /// Digests the chunks as they are read first.
  struct FirstReading {
    std::uint64_t end;  ///< of what has been read
    Digest digest = {};
    std::vector<std::uint64_t> digests = {};
  };

  StoredFile(Descriptor file, std::filesystem::path path, const FileState& state, std::uint64_t begin,
             FixedArray<std::uint64_t> digests)
      : file_{std::move(file)},
        path_{std::move(path)},
        state_{state},
        is_suspect_{state.is_fresh()},
        begin_{begin},
        bytes_{state.identity.bytes},
        digests_{std::move(digests)} {}

  std::uint64_t chunk_of(std::uint64_t offset) const { return (offset - begin_) / FileBytes::chunk_bytes; }
  std::uint64_t begin_of(std::uint64_t chunk) const { return begin_ + chunk * FileBytes::chunk_bytes; }
  std::vector<std::uint8_t> read_chunk(std::uint64_t chunk) const;
  void note(std::uint64_t offset, std::span<const std::uint8_t> bytes) const;
  void check(std::uint64_t chunk) const;

  Descriptor file_;
  std::filesystem::path path_;
  mutable FileState state_;                    ///< when its bytes were known to be the right ones
  mutable bool is_suspect_;                    ///< whether they may be others all the same
  std::uint64_t begin_;                        ///< of the first chunk
  std::uint64_t bytes_;                        ///< of the file as it was read first
  mutable FixedArray<std::uint64_t> digests_;  ///< of its chunks
  mutable std::unique_ptr<FirstReading> first_reading_ = {};
  /// Which of them have been compared, by any process that shares the block; none if they need not be.
  FixedArray<std::uint8_t> checked_;
};

}  // namespace lockstep
