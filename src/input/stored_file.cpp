#include "input/stored_file.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "base/digest.hpp"
#include "input/failure.hpp"

namespace lockstep {

void read_again(const Descriptor& file, const std::filesystem::path& path, std::uint64_t offset,
                std::span<std::uint8_t> to) {
  while (!to.empty()) {
    const ::ssize_t found = ::pread(file.get(), to.data(), to.size(), static_cast<::off_t>(offset));
    if (found < 0 && errno == EINTR) continue;
    if (found < 0) throw ConfigError{fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno))};
    if (found == 0)
      throw ConfigError{
          fmt::format("{}: has become shorter while it was in use: expected a byte at {}", path.string(), offset)};
    to = to.subspan(static_cast<std::size_t>(found));
    offset += static_cast<std::uint64_t>(found);
  }
}

std::shared_ptr<const StoredFile> StoredFile::of(const FileBytes& file) {
  Descriptor stays = file.duplicate();
  const FileIdentity identity = identity_of(stays, file.path());
  return std::shared_ptr<const StoredFile>{
      new StoredFile{std::move(stays), file.path(), identity, std::vector{file.chunk_digests()}}};
}

std::shared_ptr<const StoredFile> StoredFile::restore(const nlohmann::json& saved, const BlockReader& block) {
  const std::filesystem::path path = saved.at("path").get<std::string>();
  const auto identity = saved.at("identity").get<FileIdentity>();
  auto digests = block.array<std::uint64_t>(saved.at("digests"));
  std::shared_ptr<StoredFile> file{new StoredFile{open_again(path, identity), path, identity, std::move(digests)}};
  if (block.header().value("index", false)) file->checked_ = block.array<std::uint8_t>(saved.at("checked"));
  return file;
}

nlohmann::json StoredFile::save(BlockWriter& block) const {
  return {{"path", path_.string()},
          {"identity", identity_},
          {"digests", block.add(digests_)},
          {"checked", block.add(FixedArray{std::vector<std::uint8_t>(digests_.size())})}};
}

void StoredFile::check(std::uint64_t chunk) const {
  // Several threads and processes may do this at once, with the same outcome. The memory of a block can be written.
  const std::atomic_ref<std::uint8_t> checked{const_cast<std::uint8_t&>(checked_[chunk])};
  if (checked.load(std::memory_order_relaxed) != 0) return;
  const std::uint64_t begin = chunk * FileBytes::chunk_bytes;
  std::vector<std::uint8_t> bytes(std::min<std::uint64_t>(FileBytes::chunk_bytes, identity_.bytes - begin));
  read_again(file_, path_, begin, bytes);
  if (digest_of(std::as_bytes(std::span{bytes})) != digests_[chunk])
    fail_file(path_, fmt::format("has changed since it was indexed, though its time and size have not: the {} bytes at "
                                 "{} are others",
                                 bytes.size(), begin));
  checked.store(1, std::memory_order_relaxed);
}

void StoredFile::read(std::uint64_t offset, std::span<std::uint8_t> to) const {
  if (!checked_.empty() && !to.empty())
    for (std::uint64_t chunk = offset / FileBytes::chunk_bytes; chunk * FileBytes::chunk_bytes < offset + to.size();
         ++chunk)
      check(chunk);
  read_again(file_, path_, offset, to);
}

}  // namespace lockstep
