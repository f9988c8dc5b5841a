// Memory that the processes of a node share, handed over by a descriptor or a name.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>
#include <lockstep/control/phase_table.hpp>

namespace lockstep {
namespace {

[[noreturn]] void fail(const std::string& call, int descriptor) {
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  throw CommError{fmt::format("{}: {}", call, std::strerror(error))};
}

void resize(int descriptor, std::size_t bytes) {
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) fail("ftruncate", descriptor);
}

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device() | 1;
}

}  // namespace

SharedMemory::SharedMemory(int descriptor, std::size_t bytes) : descriptor_{descriptor}, bytes_{bytes} {
  data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data_ == MAP_FAILED) fail("mmap", descriptor);
}

void SharedMemory::set_proof() {
  handle_.proof = random_number();
  std::memcpy(data_, &handle_.proof, sizeof handle_.proof);
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  const int descriptor = ::memfd_create("lockstep", MFD_CLOEXEC);
  if (descriptor < 0) fail("memfd_create", descriptor);
  resize(descriptor, bytes);
  SharedMemory memory{descriptor, bytes};
  memory.handle_.way = Handle::Way::descriptor;
  memory.handle_.process = static_cast<std::int32_t>(::getpid());
  memory.handle_.descriptor = descriptor;
  memory.set_proof();
  return memory;
}

SharedMemory SharedMemory::create_named(std::size_t bytes) {
  Handle handle;
  handle.way = Handle::Way::name;
  std::snprintf(handle.name, sizeof handle.name, "/lockstep-%016llx", static_cast<unsigned long long>(random_number()));
  const int descriptor = ::shm_open(handle.name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (descriptor < 0) fail(fmt::format("shm_open {}", handle.name), descriptor);
  resize(descriptor, bytes);
  SharedMemory memory{descriptor, bytes};
  memory.handle_ = handle;
  memory.set_proof();
  return memory;
}

SharedMemory SharedMemory::open(const Handle& handle, std::size_t bytes) {
  int descriptor = -1;
  if (handle.way == Handle::Way::name) {
    descriptor = ::shm_open(handle.name, O_RDWR, 0);
    if (descriptor < 0) fail(fmt::format("shm_open {}", handle.name), descriptor);
  } else {
    // A process may open the descriptors of another one through /proc if it may access it at all: the same user's.
    const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
    descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) fail(path, descriptor);
  }
  // Check the size first: reading beyond the end of a smaller file is a signal, not an error.
  if (::lseek(descriptor, 0, SEEK_END) != static_cast<off_t>(bytes)) {
    ::close(descriptor);
    throw CommError{"the shared memory handed over is not of the size agreed on"};
  }
  SharedMemory memory{descriptor, bytes};
  if (std::memcmp(memory.data_, &handle.proof, sizeof handle.proof) != 0)
    throw CommError{"the shared memory handed over is another process's"};
  memory.handle_ = handle;
  return memory;
}

void SharedMemory::take_over() {
  if (handle_.way == Handle::Way::name) ::shm_unlink(handle_.name);
  std::memset(data_, 0, sizeof handle_.proof);
  handle_.way = Handle::Way::none;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_{std::exchange(other.descriptor_, -1)},
      data_{std::exchange(other.data_, nullptr)},
      bytes_{std::exchange(other.bytes_, 0)},
      handle_{std::exchange(other.handle_, Handle{})} {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(handle_, other.handle_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) ::munmap(data_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace lockstep
