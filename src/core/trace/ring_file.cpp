#include "core/trace/ring_file.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"
#include "core/base/printable.hpp"
#include "core/base/system_error.hpp"

namespace lockstep::trace {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw ConfigError{fmt::format("{}: {}; expected a trace of this version of lockstep", file.string(), why)};
}

Descriptor open_trace(const std::filesystem::path& file) {
  try {
    return open_to_read(file, file.string());
  } catch (const FileError& error) {
    if (error.code() == 0) refuse(file, "no file of a trace");
    refuse(file, error_text(error.code()));
  }
}

/// A file, mapped for reading. It cannot become shorter: its writer replaces it instead.
class Mapped {
 public:
  explicit Mapped(const std::filesystem::path& file) {
    const Descriptor opened = open_trace(file);
    struct stat status = {};
    if (::fstat(opened.get(), &status) != 0) refuse(file, error_text(errno));
    if (static_cast<std::size_t>(status.st_size) < header_bytes) refuse(file, "no file of a trace");
    bytes_ = static_cast<std::size_t>(status.st_size);
    memory_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, opened.get(), 0);
    if (memory_ == MAP_FAILED) refuse(file, error_text(errno));
  }
  Mapped(const Mapped&) = delete;
  ~Mapped() { (void)::munmap(memory_, bytes_); }

  const Header& header() const { return *static_cast<const Header*>(memory_); }
  std::uint64_t records() const { return (bytes_ - header_bytes) / sizeof(Record); }
  const Record& record(std::uint64_t number) const {
    const auto* const first = static_cast<const std::byte*>(memory_) + header_bytes;
    return reinterpret_cast<const Record*>(first)[number % records()];
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

template <std::size_t n>
std::string text_of(const std::array<char, n>& text) {
  return printable(std::string_view{text.data(), ::strnlen(text.data(), n)});
}

}  // namespace

ReadRing read_ring(const std::filesystem::path& file) {
  const Mapped mapped{file};
  const Header& header = mapped.header();
  if (header.magic != Header::expected_magic || header.records == 0 || header.records != mapped.records())
    refuse(file, "no file of a trace");
  const std::int64_t offset = header.clock_offset;
  const std::uint64_t written = header.written;
  ReadRing ring{.rank = header.rank,
                .ranks = header.ranks,
                .process = header.process,
                .task = text_of(header.task),
                .host = text_of(header.host),
                .device = text_of(header.device),
                .clock_error = header.clock_error,
                .device_clock_error = header.device_clock_error,
                .threads = {},
                .lost = written > header.records ? written - header.records : 0,
                .spans = {}};
  for (const auto& name : header.threads) ring.threads.push_back(text_of(name));
  ring.spans.reserve(std::min(written, header.records));
  for (std::uint64_t number = ring.lost; number < written; ++number) {
    const Record& record = mapped.record(number);
    const std::int64_t length = record.length.load(std::memory_order_acquire);
    const std::int64_t begin = record.begin;
    // Also one that was being written when the process was killed.
    if (length == Record::unwritten || static_cast<std::size_t>(record.kind) >= kinds) continue;
    ring.spans.push_back({.begin = begin + offset,
                          .length = length == Record::open ? std::nullopt : std::optional{length - 1},
                          .step = record.step,
                          .track = record.track,
                          .kind = record.kind,
                          .name = printable(std::string_view{
                              record.name.data(), std::min<std::size_t>(record.name_size, record.name.size())})});
    // The writer may have come round meanwhile.
    if (record.begin != begin) ring.spans.pop_back();
  }
  std::ranges::stable_sort(ring.spans, {}, &ReadSpan::begin);
  return ring;
}

}  // namespace lockstep::trace
