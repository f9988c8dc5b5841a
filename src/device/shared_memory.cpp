#include "device/shared_memory.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

namespace lockstep {
namespace {

[[noreturn]] void fail(std::string_view call) {
  const int error = errno;
  throw CommError{fmt::format("{}: {}", call, std::strerror(error))};
}

/// `value`, which `call` returned.
Descriptor checked(int value, std::string_view call) {
  if (value < 0) fail(call);
  return Descriptor{value};
}

void resize(const Descriptor& descriptor, std::size_t bytes) {
  // Beyond this limit, the system does not only refuse: it ends the process by SIGXFSZ.
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    errno = EFBIG;
    fail("ftruncate");
  }
  if (::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) fail("ftruncate");
}

Descriptor open_descriptor(const SharedMemory::Handle& handle) {
  if (handle.way == SharedMemory::Handle::Way::name)
    return checked(::shm_open(handle.name, O_RDWR, 0), fmt::format("shm_open {}", handle.name));
  // A process may open the descriptors of another one through /proc if it may access it at all: the same user's.
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
  return checked(::open(path.c_str(), O_RDWR | O_CLOEXEC), path);
}

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device() | 1;
}

}  // namespace

SharedMemory::SharedMemory(Descriptor descriptor, std::size_t bytes)
    : descriptor_{std::move(descriptor)},
      data_{::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0)},
      bytes_{bytes} {
  if (data_ == MAP_FAILED) fail("mmap");
}

void SharedMemory::set_proof() {
  handle_.proof = random_number();
  std::memcpy(data_, &handle_.proof, sizeof handle_.proof);
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  Descriptor descriptor = checked(::memfd_create("lockstep", MFD_CLOEXEC), "memfd_create");
  resize(descriptor, bytes);
  SharedMemory memory{std::move(descriptor), bytes};
  memory.handle_.way = Handle::Way::descriptor;
  memory.handle_.process = static_cast<std::int32_t>(::getpid());
  memory.handle_.descriptor = memory.descriptor_.get();
  memory.set_proof();
  return memory;
}

SharedMemory SharedMemory::create_named(std::size_t bytes) {
  Handle handle;
  handle.way = Handle::Way::name;
  std::snprintf(handle.name, sizeof handle.name, "/lockstep-%016llx", static_cast<unsigned long long>(random_number()));
  Descriptor descriptor =
      checked(::shm_open(handle.name, O_RDWR | O_CREAT | O_EXCL, 0600), fmt::format("shm_open {}", handle.name));
  resize(descriptor, bytes);
  SharedMemory memory{std::move(descriptor), bytes};
  memory.handle_ = handle;
  memory.set_proof();
  return memory;
}

SharedMemory SharedMemory::open(const Handle& handle, std::size_t bytes) {
  Descriptor descriptor = open_descriptor(handle);
  // Check the size first: reading beyond the end of a smaller file is a signal, not an error.
  if (::lseek(descriptor.get(), 0, SEEK_END) != static_cast<off_t>(bytes))
    throw CommError{"the shared memory handed over is not of the size agreed on"};
  SharedMemory memory{std::move(descriptor), bytes};
  if (std::memcmp(memory.data_, &handle.proof, sizeof handle.proof) != 0)
    throw CommError{"the shared memory handed over is another process's"};
  return memory;
}

void SharedMemory::reserve(std::size_t first, std::size_t bytes) const {
  int result = 0;
  do {
    result = ::fallocate(descriptor_.get(), 0, static_cast<off_t>(first), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail("fallocate");
}

void SharedMemory::take_over() {
  if (handle_.way == Handle::Way::name) ::shm_unlink(handle_.name);
  std::memset(data_, 0, sizeof handle_.proof);
  handle_.way = Handle::Way::none;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_{std::move(other.descriptor_)},
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
}

}  // namespace lockstep
