#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>
#include <lockstep/control/phase_table.hpp>

namespace lockstep {
namespace {

[[noreturn]] void fail(const char* call, int descriptor) {
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  throw CommError{fmt::format("{}: {}", call, std::strerror(error))};
}

}  // namespace

SharedMemory SharedMemory::create(std::size_t bytes) {
  const int descriptor = ::memfd_create("lockstep", MFD_CLOEXEC);
  if (descriptor < 0) fail("memfd_create", descriptor);
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) fail("ftruncate", descriptor);
  return {descriptor, bytes};
}

SharedMemory SharedMemory::open(const Handle& handle, std::size_t bytes) {
  // A process may open another's descriptors by way of /proc where it may look into it at all: the same user's.
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail(path.c_str(), descriptor);
  return {descriptor, bytes};
}

SharedMemory::SharedMemory(int descriptor, std::size_t bytes) : descriptor_{descriptor}, bytes_{bytes} {
  data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data_ == MAP_FAILED) fail("mmap", descriptor);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_{std::exchange(other.descriptor_, -1)},
      data_{std::exchange(other.data_, nullptr)},
      bytes_{std::exchange(other.bytes_, 0)} {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) ::munmap(data_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

SharedMemory::Handle SharedMemory::handle() const {
  return {static_cast<std::int32_t>(::getpid()), descriptor_};
}

}  // namespace lockstep
