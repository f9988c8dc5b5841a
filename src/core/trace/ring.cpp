#include "core/trace/ring.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/descriptor.hpp"
#include "core/base/system_error.hpp"

namespace lockstep::trace {
namespace {

std::int64_t nanoseconds(Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// As much of `text` as there is room for, and a zero byte.
template <std::size_t n>
void copy(std::string_view text, std::array<char, n>& to) {
  const std::size_t size = std::min(text.size(), n - 1);
  std::copy_n(text.begin(), size, to.begin());
  to[size] = '\0';
}

/// In a folder, without a name. Some file systems first want one.
Descriptor make_unnamed(const std::filesystem::path& folder) {
  Descriptor made{::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600)};
  if (made.get() >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return made;
  std::string name = folder / "lockstep-ring-XXXXXX";
  Descriptor named{::mkostemp(name.data(), O_CLOEXEC)};
  if (named.get() >= 0) (void)::unlink(name.c_str());
  return named;
}

/// Room on the disk for a file of `bytes`. 0, or the error.
int take_room(int descriptor, std::size_t bytes) {
  const int error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  if (error != ENOSYS && error != EOPNOTSUPP && error != EINVAL && error != EPERM) return error;
  // Zeros take it on any file system.
  const std::array<char, 1 << 16> zeros = {};
  for (std::size_t written = 0; written < bytes;) {
    const std::size_t next = std::min(zeros.size(), bytes - written);
    const ssize_t count = ::pwrite(descriptor, zeros.data(), next, static_cast<off_t>(written));
    if (count < 0 && errno != EINTR) return errno;
    if (count == 0) return EIO;  // of what takes nothing, and would never
    written += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  return 0;
}

/// Another process may still read the file that was there: it keeps it.
Descriptor make_file(const Ring::Options& options) {
  const std::filesystem::path& file = options.file;
  const bool is_unnamed = options.name == Ring::Options::Name::none;
  const auto fail = [&](const char* doing, int error) {
    throw CheckpointError{fmt::format("{}: {} ({})", file.string(), doing, error_text(error))};
  };
  if (!is_unnamed && ::unlink(file.c_str()) != 0 && errno != ENOENT) fail("cannot be replaced", errno);
  Descriptor made =
      is_unnamed ? make_unnamed(file) : Descriptor{::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (made.get() < 0) fail(is_unnamed ? "no file can be made there" : "cannot be made", errno);
  // A page of the mapping without room on the disk would be a SIGBUS.
  if (const int error = take_room(made.get(), options.bytes); error != 0) {
    if (!is_unnamed) (void)::unlink(file.c_str());
    fail("there is no room for it", error);
  }
  return made;
}

}  // namespace

std::atomic<Ring*> Ring::current_ = nullptr;
std::atomic<int> Ring::users_ = 0;

/// Keeps the ring from being unmapped.
class Ring::Use {
 public:
  Use() {
    if (!is_on()) return;
    ++users_;
    ring_ = current_.load();
    if (!ring_) --users_;
  }
  Use(const Use&) = delete;
  ~Use() {
    if (ring_) --users_;
  }
  Ring* operator->() const { return ring_; }
  explicit operator bool() const { return ring_ != nullptr; }

 private:
  Ring* ring_ = nullptr;
};

Ring::Ring(const Options& options) : bytes_{options.bytes}, records_{(options.bytes - header_bytes) / sizeof(Record)} {
  const Descriptor file = make_file(options);
  memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory_ == MAP_FAILED)
    throw CheckpointError{fmt::format("{}: cannot be mapped ({})", options.file.string(), error_text(errno))};
  header().records = records_;
  header().rank = options.rank;
  header().ranks = options.ranks;
  header().process = ::getpid();
  copy(options.task, header().task);
  copy(options.host, header().host);
  copy(options.device, header().device);
  // Last: a file without it is none.
  header().magic = Header::expected_magic;
  static std::atomic<int> rings = 0;
  number_ = ++rings;
  Ring* none = nullptr;
  if (current_.compare_exchange_strong(none, this)) return;
  (void)::munmap(memory_, bytes_);
  throw ConfigError{
      fmt::format("{}: the process keeps a trace already; expected one at a time", options.file.string())};
}

Ring::~Ring() {
  current_.store(nullptr);
  while (users_.load() > 0) std::this_thread::yield();
  (void)::munmap(memory_, bytes_);
}

void Ring::set_clock(std::chrono::nanoseconds offset, std::chrono::nanoseconds error) {
  header().clock_offset = offset.count();
  header().clock_error = error.count();
}

Record& Ring::record(std::uint64_t number) {
  Record* const records = reinterpret_cast<Record*>(static_cast<std::byte*>(memory_) + header_bytes);
  return records[number % records_];
}

/// Threads are numbered as they come. All beyond the last number share it.
Track Ring::own_track() {
  thread_local int numbered_by = 0;
  thread_local Track track = 0;
  if (numbered_by != number_) {
    numbered_by = number_;
    track = static_cast<Track>(std::min(tracks_++, static_cast<int>(std::ssize(header().threads)) - 1));
    (void)::prctl(PR_GET_NAME, header().threads[track].data());
  }
  return track;
}

Record& Ring::write(std::uint64_t number, Kind kind, Track track, std::string_view name, Time begin) {
  Record& made = record(number);
  made.length.store(Record::unwritten, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  made.begin.store(nanoseconds(begin), std::memory_order_relaxed);
  made.step = step_.load(std::memory_order_relaxed);
  made.track = track;
  made.kind = kind;
  made.name_size = static_cast<std::uint8_t>(std::min(name.size(), made.name.size()));
  std::copy_n(name.begin(), made.name_size, made.name.begin());
  return made;
}

void Ring::set_step(std::uint64_t step) {
  if (const Use ring; ring) ring->step_.store(static_cast<std::uint32_t>(step), std::memory_order_relaxed);
}

std::uint32_t Ring::step() {
  const Use ring;
  return ring ? ring->step_.load(std::memory_order_relaxed) : 0;
}

Ring::Open Ring::begin(Kind kind, std::string_view name) {
  return next({}, kind, name);
}

Ring::Open Ring::begin(Kind kind, Track track, std::string_view name) {
  const Use ring;
  return ring ? ring->start(kind, track, name, std::chrono::steady_clock::now()) : Open{};
}

void Ring::end(const Open& span) {
  if (span.begin == 0) return;
  if (const Use ring; ring) ring->finish(span, std::chrono::steady_clock::now());
}

Ring::Open Ring::next(const Open& ended, Kind kind, Track track, std::string_view name, Time at) {
  const Use ring;
  if (!ring) return {};
  ring->finish(ended, at);
  return ring->start(kind, track, name, at);
}

Ring::Open Ring::next(const Open& ended, Kind kind, std::string_view name) {
  const Use ring;
  if (!ring) return {};
  const Time now = std::chrono::steady_clock::now();
  ring->finish(ended, now);
  return ring->start(kind, ring->own_track(), name, now);
}

void Ring::add(const Ended& span) {
  const Use ring;
  if (!ring) return;
  const std::uint64_t number = ring->header().written.fetch_add(1, std::memory_order_relaxed);
  Record& made = ring->write(number, span.kind, span.track, span.name, span.begin);
  made.step = span.step;
  made.length.store(std::max<std::int64_t>(span.length.count(), 0) + 1, std::memory_order_release);
}

void Ring::raise_device_error(std::chrono::nanoseconds error) {
  const Use ring;
  if (!ring) return;
  std::atomic<std::int64_t>& most = ring->header().device_clock_error;
  if (most.load(std::memory_order_relaxed) < error.count()) most.store(error.count(), std::memory_order_relaxed);
}

Ring::Open Ring::start(Kind kind, Track track, std::string_view name, Time at) {
  const std::uint64_t number = header().written.fetch_add(1, std::memory_order_relaxed);
  write(number, kind, track, name, at).length.store(Record::open, std::memory_order_release);
  return {number, nanoseconds(at)};
}

/// Nothing if its record has been written over.
void Ring::finish(const Open& span, Time at) {
  if (span.begin == 0) return;
  Record& ended = record(span.number);
  if (ended.begin.load(std::memory_order_relaxed) != span.begin ||
      ended.length.load(std::memory_order_relaxed) != Record::open)
    return;
  ended.length.store(nanoseconds(at) - span.begin + 1, std::memory_order_release);
}

std::string numbered(std::string_view name, std::size_t number) {
  return fmt::format("{}_{}", name, number);
}

}  // namespace lockstep::trace
