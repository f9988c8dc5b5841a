// Stands before the C library, as every program's functions do.
#include "support/file_faults.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/next_function.hpp"

namespace lockstep::test {
namespace {

std::atomic<FileFault*> current{nullptr};
// The call that was interrupted goes on with one byte.
thread_local bool was_interrupted = false;

std::string path_of(int descriptor) {
  char path[4096];
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
  return {path, size > 0 ? static_cast<std::size_t>(size) : 0};
}

std::string path_of(const char* path) {
  return path;
}

/// The call, or what befalls it. `one_byte` makes the call for a single byte.
template <class Path, class Call, class OneByte>
auto call_or_fault(const char* name, const Path& path, Call&& call, OneByte&& one_byte) -> decltype(call()) {
  FileFault* const fault = current;
  if (!fault) return call();
  if (std::exchange(was_interrupted, false)) return one_byte();
  if (!fault->takes(name, path_of(path))) return call();
  const int error = fault->plan().error;
  was_interrupted = error == 0;
  errno = error == 0 ? EINTR : error;
  return -1;
}

template <class Path, class Call>
auto call_or_fault(const char* name, const Path& path, Call&& call) {
  return call_or_fault(name, path, call, call);
}

}  // namespace

FileFault::FileFault(Plan plan) : plan_{std::move(plan)} {
  current = this;
}

FileFault::~FileFault() {
  current = nullptr;
}

bool FileFault::is_on() {
  return current != nullptr;
}

bool FileFault::takes(const char* name, const std::string& path) {
  if (path.find(plan_.place) == path.npos || (!plan_.name.empty() && plan_.name != name)) return false;
  return calls_++ == plan_.call;
}

void for_each_file_fault(const std::string& place, int error, const std::function<void(std::int64_t call)>& attempt) {
  std::int64_t calls = 0;
  {
    const FileFault none{{.place = place}};
    attempt(-1);
    calls = none.calls();
  }
  for (std::int64_t call = 0; call < calls; ++call) {
    const FileFault fault{{.place = place, .call = call, .error = error}};
    attempt(call);
  }
}

}  // namespace lockstep::test

using lockstep::test::call_or_fault;
using lockstep::test::FileFault;
using lockstep::test::next;

// With the names that the C library's headers give them, which depend on the width of off_t.
#ifdef __USE_FILE_OFFSET64
#define NAME_OF(function) #function "64"
#else
#define NAME_OF(function) #function
#endif

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>(NAME_OF(open));
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return call_or_fault("open", path, [&] { return real(path, flags, mode); });
}

ssize_t read(int file, void* to, size_t size) {
  static auto* const real = next<ssize_t(int, void*, size_t)>("read");
  return call_or_fault(
      "read", file, [&] { return real(file, to, size); }, [&] { return real(file, to, size > 0 ? 1 : 0); });
}

ssize_t pread(int file, void* to, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off_t)>(NAME_OF(pread));
  return call_or_fault(
      "pread", file, [&] { return real(file, to, size, offset); },
      [&] { return real(file, to, size > 0 ? 1 : 0, offset); });
}

ssize_t write(int file, const void* from, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  return call_or_fault(
      "write", file, [&] { return real(file, from, size); }, [&] { return real(file, from, size > 0 ? 1 : 0); });
}

int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  // No test with faults is about what survives a crash of the machine.
  return call_or_fault("fsync", file, [&] { return FileFault::is_on() ? 0 : real(file); });
}

int ftruncate(int file, off_t size) noexcept {
  static auto* const real = next<int(int, off_t)>(NAME_OF(ftruncate));
  return call_or_fault("ftruncate", file, [&] { return real(file, size); });
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return call_or_fault("rename", to, [&] { return real(from, to); });
}

int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  return call_or_fault("unlink", path, [&] { return real(path); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return call_or_fault("mkdir", path, [&] { return real(path, mode); });
}

}  // extern "C"
