// A file that stays where it is, from which parts are read again and again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include <nlohmann/json.hpp>

#include "base/descriptor.hpp"
#include "input/data_block.hpp"
#include "input/file_bytes.hpp"
#include "input/file_identity.hpp"
#include "input/fixed_array.hpp"

namespace lockstep {

/// Reads `to.size()` bytes at `offset`. ConfigError, which names `path`, if they are not there any more.
void read_again(const Descriptor& file, const std::filesystem::path& path, std::uint64_t offset,
                std::span<std::uint8_t> to);

/// LOCAL; several threads may read at once.
class StoredFile {
 public:
  /// A file that has been read to its end.
  static std::shared_ptr<const StoredFile> of(const FileBytes& file);

  /// As it was saved. In a block that is an index, nothing has been read: each chunk of the file is compared with its
  /// digest before the first bytes of it are used. ConfigError if the path does not lead to that file any more.
  static std::shared_ptr<const StoredFile> restore(const nlohmann::json& saved, const BlockReader& block);

  nlohmann::json save(BlockWriter& block) const;

  /// Reads `to.size()` bytes at `offset`. ConfigError if they are not there any more, or are others.
  void read(std::uint64_t offset, std::span<std::uint8_t> to) const;

 private:
  StoredFile(Descriptor file, std::filesystem::path path, const FileIdentity& identity,
             FixedArray<std::uint64_t> digests)
      : file_{std::move(file)}, path_{std::move(path)}, identity_{identity}, digests_{std::move(digests)} {}

  void check(std::uint64_t chunk) const;

  Descriptor file_;
  std::filesystem::path path_;
  FileIdentity identity_;
  FixedArray<std::uint64_t> digests_;  ///< of its chunks
  /// Which of them have been compared, by any process that shares the block; none if they need not be.
  FixedArray<std::uint8_t> checked_;
};

}  // namespace lockstep
