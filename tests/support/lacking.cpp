// A library to be loaded first (LD_PRELOAD), under which a process lacks something. LOCKSTEP_TEST_LACKS says what:
//
//   threads:N   the N-th thread that C++ code starts is refused
//   files:N     from the N-th on, no file is opened, and no descriptor made, for lockstep or the C++ library
//   memory:N    from the N-th on, `new` fails
//   time:N      from the N-th time on that lockstep or the C++ library asks for the time of day, it is ten hours late,
//               and then right, and so on, as where somebody sets the clock
//
// With memory and files, counting begins when the program calls lockstep_test_lack. Says so once on stderr: "lacks".
// Both names of each function, with and without 64.
#undef _FILE_OFFSET_BITS
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/next_function.hpp"

namespace {

using lockstep::test::next;

std::atomic<bool> counts = false;
std::atomic<bool> has_said = false;

/// The number behind "KIND:" in the variable; 0 if it is about something else.
long number_of(const char* kind) {
  const char* const lacks = std::getenv("LOCKSTEP_TEST_LACKS");
  const std::size_t length = std::strlen(kind);
  return lacks && std::strncmp(lacks, kind, length) == 0 && lacks[length] == ':' ? std::atol(lacks + length + 1) : 0;
}

void say() {
  constexpr char line[] = "lacks\n";
  if (!has_said.exchange(true)) (void)!::write(STDERR_FILENO, line, sizeof line - 1);
}

/// Whether the code at that address is lockstep's or the C++ library's.
bool is_ours(void* caller) {
  Dl_info found = {};
  return ::dladdr(caller, &found) != 0 && found.dli_fname &&
         (std::strstr(found.dli_fname, "lockstep") || std::strstr(found.dli_fname, "libstdc++"));
}

bool lacks_descriptor(void* caller) {
  static const long first = number_of("files");
  static std::atomic<long> made = 0;
  if (first == 0 || !counts || !is_ours(caller) || ++made < first) return false;
  say();
  errno = EMFILE;
  return true;
}

bool is_set_back(void* caller) {
  static const long first = number_of("time");
  static std::atomic<long> asked = 0;
  if (first == 0 || !is_ours(caller)) return false;
  const long number = ++asked;
  if (number < first || (number - first) % 2 == 1) return false;
  say();
  return true;
}

void* allocate(std::size_t size) {
  static const long first = number_of("memory");
  static std::atomic<long> made = 0;
  if (first > 0 && counts && ++made >= first) {
    say();
    throw std::bad_alloc{};
  }
  if (void* const memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc{};
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

extern "C" {

void lockstep_test_lack() {
  counts = true;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* of) {
  static const long refused = number_of("threads");
  static std::atomic<long> started = 0;
  if (refused > 0 && is_ours(__builtin_return_address(0)) && ++started == refused) {
    say();
    return EAGAIN;
  }
  return next<decltype(pthread_create)>("pthread_create")(thread, attributes, work, of);
}

int eventfd(unsigned count, int flags) {
  if (lacks_descriptor(__builtin_return_address(0))) return -1;
  return next<decltype(eventfd)>("eventfd")(count, flags);
}

int socket(int domain, int type, int protocol) {
  if (lacks_descriptor(__builtin_return_address(0))) return -1;
  return next<decltype(socket)>("socket")(domain, type, protocol);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static auto* const original = next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = original(clock, now);
  if (clock == CLOCK_REALTIME && is_set_back(__builtin_return_address(0))) now->tv_sec -= 36000;
  return result;
}

time_t time(time_t* too) noexcept {
  static auto* const original = next<time_t(time_t*)>("time");
  const time_t now = original(nullptr) - (is_set_back(__builtin_return_address(0)) ? 36000 : 0);
  if (too) *too = now;
  return now;
}

FILE* fopen(const char* path, const char* mode) {
  if (lacks_descriptor(__builtin_return_address(0))) return nullptr;
  return next<decltype(fopen)>("fopen")(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  if (lacks_descriptor(__builtin_return_address(0))) return nullptr;
  return next<decltype(fopen64)>("fopen64")(path, mode);
}

#define LOCKSTEP_LACKING_OPEN(name)                                         \
  int name(const char* path, int flags, ...) {                              \
    if (lacks_descriptor(__builtin_return_address(0))) return -1;           \
    std::va_list more;                                                      \
    va_start(more, flags);                                                  \
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; \
    va_end(more);                                                           \
    return next<int(const char*, int, ...)>(#name)(path, flags, mode);      \
  }
LOCKSTEP_LACKING_OPEN(open)
LOCKSTEP_LACKING_OPEN(open64)

}  // extern "C"
