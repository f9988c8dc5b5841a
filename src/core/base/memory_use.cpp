#include "core/base/memory_use.hpp"

#include <array>
#include <charconv>

#include <fcntl.h>
#include <fmt/format.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/descriptor.hpp"

namespace lockstep {
namespace {

/// Of a line such as "VmRSS:	  1234 kB".
std::uint64_t bytes_after(std::string_view status, std::string_view name) {
  const auto begin = status.find(name);
  if (begin == status.npos) return 0;
  status.remove_prefix(begin + name.size());
  const auto digits = status.find_first_not_of(" \t");
  if (digits == status.npos) return 0;
  status.remove_prefix(digits);
  std::uint64_t kibibytes = 0;
  (void)std::from_chars(status.data(), status.data() + status.size(), kibibytes);
  return kibibytes * 1024;
}

}  // namespace

MemoryUse parse_memory_use(std::string_view status) {
  return {bytes_after(status, "\nVmRSS:"), bytes_after(status, "\nVmHWM:")};
}

MemoryUse memory_in_use() {
  const Descriptor file{::open("/proc/self/status", O_RDONLY | O_CLOEXEC)};
  std::array<char, 4096> text;
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  return count > 0 ? parse_memory_use({text.data(), static_cast<std::size_t>(count)}) : MemoryUse{};
}

std::optional<std::uint64_t> memory_limit() {
  rlimit limit = {};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? std::optional<std::uint64_t>{limit.rlim_cur} : std::nullopt;
}

std::string why_no_memory() {
  const std::optional<std::uint64_t> limit = memory_limit();
  return limit ? fmt::format("this process may have {} bytes (ulimit -v)", *limit) : "the host has no more";
}

void return_freed_memory() {
#ifdef __GLIBC__
  (void)::malloc_trim(0);
#endif
}

}  // namespace lockstep
