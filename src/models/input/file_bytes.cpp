#include "models/input/file_bytes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <new>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/digest.hpp"
#include "core/base/file_io.hpp"
#include "core/base/system_error.hpp"
#include "models/input/failure.hpp"

namespace lockstep {
namespace {

constexpr std::uint8_t gzip_magic[] = {0x1f, 0x8b};
constexpr int largest_window_gzip_only = 15 + 16;  // what zlib calls windowBits
// Deflate's best: two bits for 258 bytes.
constexpr std::uint64_t most_unpacked_per_byte = 1032;

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& path)
    : path_{path},
      file_{as_input([&] { return open_to_read(path, path.string()); })},
      state_{state_of(file_, path)},
      buffer_(chunk_bytes) {
  refill();
  // No IDX file begins like this, nor does any text.
  packed_ = stream_.avail_in >= std::size(gzip_magic) &&
            std::equal(std::begin(gzip_magic), std::end(gzip_magic), stream_.next_in);
  if (packed_ && inflateInit2(&stream_, largest_window_gzip_only) != Z_OK) throw std::bad_alloc{};
}

FileBytes::~FileBytes() {
  if (packed_) inflateEnd(&stream_);
}

std::uint64_t FileBytes::most_bytes() const {
  return state_.identity.bytes * (packed_ ? most_unpacked_per_byte : 1);
}

std::vector<std::uint8_t> FileBytes::room_for(std::uint64_t bytes) const {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  const std::uint64_t there = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto needed = [&] { return fmt::format("needs {} bytes of memory{}", bytes, packed_ ? " when unpacked" : ""); };
  if (bytes > there) fail(fmt::format("{}; expected at most the {} that this host has", needed(), there));
  std::vector<std::uint8_t> room;
  try {
    room.reserve(bytes);
  } catch (const std::bad_alloc&) {
    fail(fmt::format("{}; expected at most what the system gives this process (ulimit -v)", needed()));
  }
  return room;
}

std::size_t FileBytes::read(std::span<std::uint8_t> to) {
  return packed_ ? read_packed(to) : read_plain(to);
}

void FileBytes::refill() {
  stream_.next_in = buffer_.data();
  stream_.avail_in = static_cast<uInt>(
      as_input([&] { return read_next(file_, std::as_writable_bytes(std::span{buffer_}), path_.string()); }));
  // A chunk is whole, but for the last one.
  if (stream_.avail_in < buffer_.size() && identity_of(file_, path_) != state_.identity)
    fail("changed while it was read");
  if (!packed_ && stream_.avail_in > 0)
    chunk_digests_.push_back(digest_of(std::as_bytes(std::span{buffer_}.first(stream_.avail_in))));
}

std::size_t FileBytes::read_plain(std::span<std::uint8_t> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    if (stream_.avail_in == 0) refill();
    const std::size_t taken = std::min<std::size_t>(stream_.avail_in, to.size() - done);
    if (taken == 0) break;
    std::memcpy(to.data() + done, stream_.next_in, taken);
    stream_.next_in += taken;
    stream_.avail_in -= static_cast<uInt>(taken);
    done += taken;
  }
  return done;
}

std::size_t FileBytes::read_packed(std::span<std::uint8_t> to) {
  std::size_t done = 0;
  while (done < to.size() && !ended_) {
    if (stream_.avail_in == 0) refill();
    if (stream_.avail_in == 0) fail("truncated: its packed (gzip) data ends early");
    const auto room = static_cast<uInt>(std::min<std::size_t>(to.size() - done, std::numeric_limits<uInt>::max()));
    stream_.next_out = to.data() + done;
    stream_.avail_out = room;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    done += room - stream_.avail_out;
    if (result == Z_STREAM_END)
      end_or_next_piece();
    else if (result != Z_OK)
      fail(fmt::format("its packed (gzip) data is corrupt: {}", stream_.msg ? stream_.msg : zError(result)));
  }
  return done;
}

void FileBytes::end_or_next_piece() {
  if (stream_.avail_in == 0) refill();
  if (stream_.avail_in == 0)
    ended_ = true;
  else if (stream_.next_in[0] == 0)
    end_after_zeros();
  else if (stream_.next_in[0] != gzip_magic[0])
    fail("has trailing bytes after its packed (gzip) data");
  else
    inflateReset(&stream_);
}

/// Tapes and blocks of a fixed size are filled up with them, and gzip passes them by.
void FileBytes::end_after_zeros() {
  for (; stream_.avail_in > 0; refill())
    if (std::any_of(stream_.next_in, stream_.next_in + stream_.avail_in, [](Bytef byte) { return byte != 0; }))
      fail("has trailing bytes after its packed (gzip) data");
  ended_ = true;
}

Descriptor FileBytes::duplicate() const {
  Descriptor made{::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0)};
  if (made.get() < 0) fail(fmt::format("cannot be kept open: {}", error_text(errno)));
  return made;
}

void FileBytes::fail(const std::string& what) const {
  fail_file(path_, what);
}

namespace {

std::optional<std::vector<std::uint8_t>> read_all_plain(FileBytes& file, std::uint64_t limit) {
  const std::uint64_t count = file.most_bytes();
  if (count > limit) return std::nullopt;
  std::vector<std::uint8_t> bytes = file.room_for(count);
  bytes.resize(count);
  std::uint8_t next;
  if (file.read(bytes) < count || file.read({&next, 1}) != 0) file.fail("changed while it was read");
  return bytes;
}

/// Its size is known at its end.
std::optional<std::vector<std::uint8_t>> read_all_packed(FileBytes& file, std::uint64_t limit) {
  constexpr std::size_t piece_size = 1 << 20;
  std::deque<std::vector<std::uint8_t>> pieces;
  std::uint64_t count = 0;
  do {
    std::vector<std::uint8_t>& piece = pieces.emplace_back(piece_size);
    piece.resize(file.read(piece));
    count += piece.size();
    if (count > limit) return std::nullopt;
  } while (pieces.back().size() == piece_size);
  std::vector<std::uint8_t> bytes = file.room_for(count);
  for (; !pieces.empty(); pieces.pop_front()) bytes.insert(bytes.end(), pieces.front().begin(), pieces.front().end());
  return bytes;
}

}  // namespace

std::optional<std::vector<std::uint8_t>> read_all(FileBytes& file, std::uint64_t limit) {
  return file.packed() ? read_all_packed(file, limit) : read_all_plain(file, limit);
}

std::vector<std::uint8_t> read_whole_file(const std::filesystem::path& path, std::uint64_t limit,
                                          std::string_view expected) {
  FileBytes file{path};
  if (std::optional<std::vector<std::uint8_t>> bytes = read_all(file, limit)) return *std::move(bytes);
  file.fail(
      fmt::format("holds more than {} bytes{}; expected {}", limit, file.packed() ? " when unpacked" : "", expected));
}

}  // namespace lockstep
