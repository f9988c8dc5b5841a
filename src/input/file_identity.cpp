#include "input/file_identity.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "input/failure.hpp"

namespace lockstep {
namespace {

[[noreturn]] void fail_to_open(const std::filesystem::path& path) {
  fail_file(path, fmt::format("cannot be read: {}", std::strerror(errno)));
}

FileIdentity identity_from(const struct ::stat& facts) {
  return {.device = facts.st_dev,
          .inode = facts.st_ino,
          .bytes = static_cast<std::uint64_t>(facts.st_size),
          .seconds = facts.st_mtim.tv_sec,
          .nanoseconds = facts.st_mtim.tv_nsec};
}

}  // namespace

FileIdentity identity_of(const Descriptor& file, const std::filesystem::path& path) {
  struct ::stat facts;
  if (::fstat(file.get(), &facts) != 0) fail_to_open(path);
  return identity_from(facts);
}

FileIdentity identity_of(const std::filesystem::path& path) {
  struct ::stat facts;
  if (::stat(path.c_str(), &facts) != 0) fail_to_open(path);
  return identity_from(facts);
}

Descriptor open_again(const std::filesystem::path& path, const FileIdentity& identity) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.get() < 0) fail_to_open(path);
  if (identity_of(file, path) != identity) fail_file(path, "changed while it was read");
  return file;
}

}  // namespace lockstep
