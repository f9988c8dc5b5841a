#include "models/input/file_identity.hpp"

#include <cerrno>
#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/base/system_error.hpp"
#include "models/input/failure.hpp"

namespace lockstep {
namespace {

[[noreturn]] void fail_to_open(const std::filesystem::path& path) {
  fail_file(path, fmt::format("cannot be read: {}", error_text(errno)));
}

FileIdentity identity_from(const struct ::stat& facts) {
  return {.device = facts.st_dev,
          .inode = facts.st_ino,
          .bytes = static_cast<std::uint64_t>(facts.st_size),
          .seconds = facts.st_mtim.tv_sec,
          .nanoseconds = facts.st_mtim.tv_nsec};
}

}  // namespace

bool FileState::is_fresh() const {
  struct ::timespec now;
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);  // whose ticks are those of times in file systems of this host
  constexpr std::int64_t coarsest_tick = 2;      // in seconds: that of FAT
  if (nanoseconds == 0) return now.tv_sec - seconds <= coarsest_tick;
  return std::pair{std::int64_t{now.tv_sec}, std::int64_t{now.tv_nsec}} <= std::pair{seconds, nanoseconds};
}

FileState state_of(const Descriptor& file, const std::filesystem::path& path) {
  struct ::stat facts;
  if (::fstat(file.get(), &facts) != 0) fail_to_open(path);
  return {.identity = identity_from(facts), .seconds = facts.st_ctim.tv_sec, .nanoseconds = facts.st_ctim.tv_nsec};
}

FileIdentity identity_of(const Descriptor& file, const std::filesystem::path& path) {
  return state_of(file, path).identity;
}

FileIdentity identity_of(const std::filesystem::path& path) {
  struct ::stat facts;
  if (::stat(path.c_str(), &facts) != 0) fail_to_open(path);
  return identity_from(facts);
}

Descriptor open_again(const std::filesystem::path& path, const FileIdentity& identity) {
  Descriptor file = as_input([&] { return open_to_read(path, path.string()); });
  if (identity_of(file, path) != identity) fail_file(path, "changed while it was read");
  return file;
}

}  // namespace lockstep
