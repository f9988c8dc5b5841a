#include "models/input/stored_file.hpp"

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"
#include "core/base/progress_count.hpp"
#include "models/input/failure.hpp"

namespace lockstep {
namespace {

/// Reads `to.size()` bytes at `offset`. ConfigError, which names `path`, if they are not there any more.
void read_again(const Descriptor& file, const std::filesystem::path& path, std::uint64_t offset,
                std::span<std::uint8_t> to) {
  const std::size_t count = as_input([&] { return read_at(file, offset, std::as_writable_bytes(to), path.string()); });
  if (count < to.size())
    fail_file(path, fmt::format("has become shorter while it was in use: expected a byte at {}", offset + count));
}

}  // namespace

std::shared_ptr<const StoredFile> StoredFile::of(const FileBytes& file) {
  return std::shared_ptr<const StoredFile>{
      new StoredFile{file.duplicate(), file.path(), file.state(), 0, std::vector{file.chunk_digests()}}};
}

std::shared_ptr<const StoredFile> StoredFile::unread(const FileBytes& file, std::uint64_t begin) {
  std::shared_ptr<StoredFile> made{new StoredFile{file.duplicate(), file.path(), file.state(), begin, {}}};
  if (begin < made->bytes_) made->first_reading_ = std::make_unique<FirstReading>(FirstReading{.end = begin});
  return made;
}

std::shared_ptr<const StoredFile> StoredFile::restore(const nlohmann::json& saved, const BlockReader& block) {
  const std::filesystem::path path = saved.at("path").get<std::string>();
  const auto identity = saved.at("identity").get<FileIdentity>();
  Descriptor opened = open_again(path, identity);
  const FileState state = state_of(opened, path);
  std::shared_ptr<StoredFile> file{new StoredFile{std::move(opened), path, state,
                                                  saved.at("begin").get<std::uint64_t>(),
                                                  block.array<std::uint64_t>(saved.at("digests"))}};
  if (block.header().value("index", false))
    file->checked_ = block.array<std::uint8_t>(saved.at("checked"));
  else if (saved.at("changed") != nlohmann::json{state.seconds, state.nanoseconds})
    file->is_suspect_ = true;
  return file;
}

nlohmann::json StoredFile::save(BlockWriter& block) const {
  return {{"path", path_.string()},
          {"identity", state_.identity},
          {"changed", {state_.seconds, state_.nanoseconds}},
          {"begin", begin_},
          {"digests", block.add(digests_)},
          {"checked", block.add(FixedArray{std::vector<std::uint8_t>(digests_.size())})}};
}

std::vector<std::uint8_t> StoredFile::read_chunk(std::uint64_t chunk) const {
  const std::uint64_t begin = begin_of(chunk);
  std::vector<std::uint8_t> bytes(std::min<std::uint64_t>(FileBytes::chunk_bytes, bytes_ - begin));
  read_again(file_, path_, begin, bytes);
  return bytes;
}

void StoredFile::note(std::uint64_t offset, std::span<const std::uint8_t> bytes) const {
  FirstReading& reading = *first_reading_;
  while (offset == reading.end && !bytes.empty()) {
    const std::uint64_t end = std::min(begin_of(chunk_of(offset) + 1), bytes_);
    const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), end - offset));
    reading.digest.update(std::as_bytes(part));
    bytes = bytes.subspan(part.size());
    reading.end = offset += part.size();
    if (offset == end) {
      reading.digests.push_back(reading.digest.value());
      reading.digest = {};
    }
    if (offset < bytes_) continue;
    digests_ = std::move(reading.digests);
    first_reading_.reset();
    is_suspect_ = state_.is_fresh();
    return;
  }
}

void StoredFile::check(std::uint64_t chunk) const {
  // Several threads and processes may do this at once, with the same outcome. The memory of a block can be written.
  const std::atomic_ref<std::uint8_t> checked{const_cast<std::uint8_t&>(checked_[chunk])};
  if (checked.load(std::memory_order_relaxed) != 0) return;
  const std::vector<std::uint8_t> bytes = read_chunk(chunk);
  if (digest_of(std::as_bytes(std::span{bytes})) != digests_[chunk])
    fail_file(path_, fmt::format("has changed since it was indexed, though its time and size have not: the {} bytes at "
                                 "{} are others",
                                 bytes.size(), begin_of(chunk)));
  checked.store(1, std::memory_order_relaxed);
}

void StoredFile::read(std::uint64_t offset, std::span<std::uint8_t> to) const {
  if (!checked_.empty() && !to.empty())
    for (std::uint64_t chunk = chunk_of(offset); begin_of(chunk) < offset + to.size(); ++chunk) check(chunk);
  read_again(file_, path_, offset, to);
  if (first_reading_) note(offset, to);
}

void StoredFile::require_unchanged() const {
  const FileState now = state_of(file_, path_);
  if (now == state_ && !is_suspect_) return;
  const std::string_view expected = "; expected files that stay as they are until the run ends";
  if (!was_read()) fail_file(path_, fmt::format("has changed before it was read{}", expected));
  for (std::uint64_t chunk = 0; chunk < digests_.size(); ++chunk) {
    const std::vector<std::uint8_t> bytes = read_chunk(chunk);
    if (digest_of(std::as_bytes(std::span{bytes})) != digests_[chunk])
      fail_file(path_, fmt::format("has changed while it was in use: the {} bytes at {} differ from those that were "
                                   "read at the start{}",
                                   bytes.size(), begin_of(chunk), expected));
    detail::count_progress();
  }
  state_ = now;
  is_suspect_ = now.is_fresh();
}

}  // namespace lockstep
