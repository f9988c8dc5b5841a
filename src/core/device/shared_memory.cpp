#include "core/device/shared_memory.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"
#include "core/base/system_error.hpp"

namespace lockstep {
namespace {

[[noreturn]] void fail(std::string_view call) {
  const int error = errno;
  throw CommError{fmt::format("{}: {}", call, error_text(error))};
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

constexpr std::string_view name_prefix = "lockstep-";

std::string new_name() {
  return fmt::format("/{}{:016x}", name_prefix, random_number());
}

bool is_own_name(std::string_view name) {
  constexpr std::string_view digits = "0123456789abcdef";
  return name.starts_with(name_prefix) && name.size() == name_prefix.size() + 16 &&
         name.find_first_not_of(digits, name_prefix.size()) == name.npos;
}

/// Whether some name leads to it still.
bool has_name(const Descriptor& file) {
  struct stat status = {};
  return ::fstat(file.get(), &status) == 0 && status.st_nlink > 0;
}

}  // namespace

SharedMemory::Name& SharedMemory::Name::operator=(Name&& other) noexcept {
  std::swap(text_, other.text_);
  return *this;
}

void SharedMemory::Name::remove() {
  if (!text_.empty()) ::shm_unlink(text_.c_str());
  text_.clear();
}

SharedMemory::SharedMemory(Name name, Descriptor descriptor, std::size_t bytes)
    : name_{std::move(name)}, descriptor_{std::move(descriptor)}, data_{nullptr, Unmap{bytes}} {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
  if (data == MAP_FAILED) fail("mmap");
  data_.reset(data);
}

void SharedMemory::Unmap::operator()(void* data) const {
  ::munmap(data, bytes);
}

void SharedMemory::set_proof() {
  handle_.proof = random_number();
  std::memcpy(data(), &handle_.proof, sizeof handle_.proof);
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  Descriptor descriptor = checked(::memfd_create("lockstep", MFD_CLOEXEC), "memfd_create");
  resize(descriptor, bytes);
  SharedMemory memory{{}, std::move(descriptor), bytes};
  memory.handle_.way = Handle::Way::descriptor;
  memory.handle_.process = static_cast<std::int32_t>(::getpid());
  memory.handle_.descriptor = memory.descriptor_.get();
  memory.set_proof();
  return memory;
}

SharedMemory SharedMemory::create_named(std::size_t bytes) {
  remove_abandoned();
  while (true) {
    const std::string text = new_name();
    Descriptor descriptor =
        checked(::shm_open(text.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600), fmt::format("shm_open {}", text));
    Name name{text};
    // The lock says that the one who made the name lives. Whoever cleans up may have been faster.
    if (uninterrupted([&] { return ::flock(descriptor.get(), LOCK_EX); }) != 0) fail(fmt::format("flock {}", text));
    if (!has_name(descriptor)) continue;
    resize(descriptor, bytes);
    SharedMemory memory{std::move(name), std::move(descriptor), bytes};
    memory.handle_.way = Handle::Way::name;
    std::snprintf(memory.handle_.name, sizeof memory.handle_.name, "%s", text.c_str());
    memory.set_proof();
    return memory;
  }
}

void SharedMemory::remove_abandoned() {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry{"/dev/shm", ignored}, end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (!is_own_name(name)) continue;
    // Another user's cannot be opened. A descriptor of a process that lives has the lock.
    const Descriptor file{::open(entry->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    struct stat status = {};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != ::geteuid() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
      continue;
    ::shm_unlink(("/" + name).c_str());
  }
}

SharedMemory SharedMemory::open(const Handle& handle, std::size_t bytes) {
  Descriptor descriptor = open_descriptor(handle);
  // Check the size first: reading beyond the end of a smaller file is a signal, not an error.
  if (::lseek(descriptor.get(), 0, SEEK_END) != static_cast<off_t>(bytes))
    throw CommError{"the shared memory handed over is not of the size agreed on"};
  SharedMemory memory{{}, std::move(descriptor), bytes};
  if (std::memcmp(memory.data(), &handle.proof, sizeof handle.proof) != 0)
    throw CommError{"the shared memory handed over is another process's"};
  return memory;
}

void SharedMemory::reserve(std::size_t first, std::size_t bytes) const {
  const auto take = [&] {
    return ::fallocate(descriptor_.get(), 0, static_cast<off_t>(first), static_cast<off_t>(bytes));
  };
  if (uninterrupted(take) != 0) fail("fallocate");
}

void SharedMemory::take_over() {
  name_.remove();
  std::memset(data(), 0, sizeof handle_.proof);
  handle_.way = Handle::Way::none;
}

}  // namespace lockstep
