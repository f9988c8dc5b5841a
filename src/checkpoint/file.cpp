#include "checkpoint/file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_type.hpp"
#include "checkpoint/failure.hpp"
#include "control/tag.hpp"

namespace lockstep {
namespace {

Descriptor open_file(const std::filesystem::path& path, int flags) {
  constexpr mode_t as_the_user_allows = 0666;
  return Descriptor{::open(path.c_str(), flags | O_CLOEXEC, as_the_user_allows)};
}

/// What a killed writer left is removed first. A link that somebody put there is not followed.
Descriptor make_file(const std::filesystem::path& path) {
  ::unlink(path.c_str());
  return open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
}

/// Repeats a system call until no signal interrupts it.
template <class Call>
auto uninterrupted(Call&& call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

bool sync_folder(const std::filesystem::path& folder) {
  const Descriptor descriptor = open_file(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  return descriptor.get() >= 0 && (::fsync(descriptor.get()) == 0 || errno == EINVAL);
}

NewFile::NewFile(std::filesystem::path path, std::string what)
    : path_{std::move(path)}, what_{std::move(what)}, part_{path_.string() + ".part"}, descriptor_{make_file(part_)} {
  if (descriptor_.get() < 0) fail("made");
}

NewFile::~NewFile() {
  if (!committed_ && descriptor_.get() >= 0) ::unlink(part_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = uninterrupted([&] { return ::write(descriptor_.get(), bytes.data(), bytes.size()); });
    if (written < 0) fail("written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void NewFile::commit() {
  if (::fsync(descriptor_.get()) != 0) fail("written");
  if (::rename(part_.c_str(), path_.c_str()) != 0) fail("put in its place");
  committed_ = true;
  if (!sync_folder(path_.parent_path())) fail("put in its place for good");
}

void NewFile::fail(std::string_view doing) const {
  throw CheckpointError{
      one_line(fmt::format("{} {}: cannot be {}: {}", what_, path_.string(), doing, std::strerror(errno)))};
}

ExistingFile::ExistingFile(std::filesystem::path path)
    // Without O_NONBLOCK, opening a pipe would block forever.
    : path_{std::move(path)}, descriptor_{open_file(path_, O_RDONLY | O_NONBLOCK)} {
  struct stat status = {};
  if (descriptor_.get() >= 0 && ::fstat(descriptor_.get(), &status) == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  const int error = errno;
  const std::string why = why_not_regular(path_);
  fail_checkpoint(path_.string(), why.empty() ? fmt::format("cannot be read: {}", std::strerror(error)) : why);
}

void ExistingFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = uninterrupted(
        [&] { return ::pread(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (count < 0) fail_checkpoint(path_.string(), fmt::format("cannot be read: {}", std::strerror(errno)));
    if (count == 0) fail_checkpoint(path_.string(), "became shorter while it was read");
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace lockstep
