// Text on streams whose readers are slow, stand still or are gone, and which others have made non-blocking.
#include "core/base/stream.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string>
#include <thread>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/descriptor.hpp"
#include "core/base/open_line.hpp"
#include "support/child_process.hpp"

using namespace lockstep;
using namespace std::chrono_literals;
using lockstep::test::ChildProcess;

namespace {

/// While it lives, this process has been stopped for an hour since it looked at the clock first.
class Stop {
 public:
  Stop() { looks = 0; }
  Stop(const Stop&) = delete;
  ~Stop() { looks = -1; }

  static inline std::atomic<int> looks{-1};
};

std::chrono::nanoseconds real_time() {
  timespec now = {};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
}

}  // namespace

// Stands before the C library, as every program's functions do.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (clock == CLOCK_MONOTONIC && Stop::looks >= 0 && Stop::looks++ > 0) now->tv_sec += 3600;
  return result;
}

namespace {

struct Ends {
  Descriptor read, write;
};

Ends small_pipe(int flags) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
  ::fcntl(ends[1], F_SETFL, flags);
  return {Descriptor{ends[0]}, Descriptor{ends[1]}};
}

Ends small_socket(int flags) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  constexpr int bytes = 4608;
  ::setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  ::fcntl(ends[1], F_SETFL, flags);
  return {Descriptor{ends[0]}, Descriptor{ends[1]}};
}

/// All that comes, in small bites.
std::string read_slowly(const Descriptor& from) {
  std::string text;
  std::array<char, 700> bytes;
  for (ssize_t count; (count = ::read(from.get(), bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<std::size_t>(count));
    std::this_thread::yield();
  }
  return text;
}

std::string many_lines() {
  std::string text;
  for (int line = 0; line < 3000; ++line) text += "line " + std::to_string(line) + " of a job\n";
  return text;
}

/// Fills the stream.
void fill(const Ends& ends) {
  const int before = ::fcntl(ends.write.get(), F_GETFL);
  ::fcntl(ends.write.get(), F_SETFL, before | O_NONBLOCK);
  while (::write(ends.write.get(), "x", 1) == 1) continue;
  ::fcntl(ends.write.get(), F_SETFL, before);
}

}  // namespace

TEST_CASE("what is written arrives whole, whether the stream blocks or not, and with any patience") {
  const std::string text = many_lines();
  for (const auto make : {&small_pipe, &small_socket})
    for (const int flags : {0, O_NONBLOCK})
      for (const StreamPatience patience : {StreamPatience{}, StreamPatience{.idle = 60s}}) {
        Ends ends = make(flags);
        std::string read;
        std::thread reader{[&] { read = read_slowly(ends.read); }};
        CHECK(write_text(ends.write.get(), text, patience) == 0);
        ends.write = Descriptor{};
        reader.join();
        CHECK(read == text);
      }
}

TEST_CASE("patience with a reader that stands still ends, and with one that is gone at once") {
  std::signal(SIGPIPE, SIG_IGN);
  for (const auto make : {&small_pipe, &small_socket})
    for (const int flags : {0, O_NONBLOCK}) {
      Ends ends = make(flags);
      fill(ends);
      const auto begin = std::chrono::steady_clock::now();
      CHECK(write_text(ends.write.get(), "a line\n", {.idle = 30ms}) == EAGAIN);
      CHECK(write_text(ends.write.get(), "a line\n", {.in_all = 30ms}) == EAGAIN);
      CHECK(std::chrono::steady_clock::now() - begin >= 60ms);
      ends.read = Descriptor{};
      CHECK(write_text(ends.write.get(), "a line\n") == EPIPE);
    }
  std::signal(SIGPIPE, SIG_DFL);
  CHECK(write_text(-1, "a line\n", {.idle = 60s}) == EBADF);
}

TEST_CASE("while a writer is stopped, its patience with the reader is too") {
  const Ends ends = small_pipe(0);
  fill(ends);
  for (const StreamPatience patience : {StreamPatience{.idle = 300ms}, StreamPatience{.in_all = 300ms}}) {
    const auto before = real_time();
    const Stop hour;
    CHECK(write_text(ends.write.get(), "x", patience) == EAGAIN);
    CHECK(real_time() - before > 50ms);
  }
}

TEST_CASE("a reader that takes little by little is not one that stands still") {
  Ends ends = small_pipe(0);
  fill(ends);
  // The pipe becomes writable only when all of it has been read.
  std::atomic<bool> written = false;
  std::thread reader{[&] {
    char byte = 0;
    for (int taken = 0; !written; ++taken) {
      (void)!::read(ends.read.get(), &byte, 1);
      std::this_thread::sleep_for(taken < 40 ? 5ms : 0ms);
    }
  }};
  CHECK(write_text(ends.write.get(), "a line\n", {.idle = 100ms}) == 0);
  written = true;
  ends.write = Descriptor{};
  reader.join();
}

TEST_CASE("lines of the log arrive whole on a stream that somebody has made non-blocking, and so does the last line") {
  Ends ends = small_pipe(O_NONBLOCK);
  ChildProcess child{[&] {
    ::dup2(ends.write.get(), STDERR_FILENO);
    for (int line = 0; line < 400; ++line) log::info("line " + std::to_string(line));
    print_last_line("lockstep: error: the end", 1);
    return 0;
  }};
  ends.write = Descriptor{};
  std::string expected;
  for (int line = 0; line < 400; ++line) expected += "[lockstep] info: line " + std::to_string(line) + "\n";
  CHECK(read_slowly(ends.read) == expected + "lockstep: error: the end\n");
  CHECK(child.wait() == 0);
}

TEST_CASE("a job does not stand still with its reader, who is waited for once, and gets lines again when he reads on") {
  Ends ends = small_pipe(0);
  fill(ends);
  LineWriter lines{ends.write.get(), {.idle = 100ms}};
  const auto begin = std::chrono::steady_clock::now();
  for (int line = 0; line < 50; ++line)
    for (const char* each : {"", "too late\n"}) lines.write(each);
  CHECK(std::chrono::steady_clock::now() - begin < 50 * 100ms);
  std::string full(4096, ' ');
  CHECK(::read(ends.read.get(), full.data(), full.size()) == 4096);
  lines.write("in time\n");
  ends.write = Descriptor{};
  CHECK(read_slowly(ends.read) == "in time\n");
}

TEST_CASE("a standard stream that is closed stays so, and no file gets what is written to it") {
  ChildProcess child{[] {
    ::close(STDOUT_FILENO);
    ::close(STDERR_FILENO);
    keep_closed_streams_closed();
    const Descriptor file{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    if (file.get() <= STDERR_FILENO) return 1;
    return write_text(STDERR_FILENO, "a line\n") == EBADF && write_text(STDOUT_FILENO, "a line\n") == EBADF ? 0 : 2;
  }};
  CHECK(child.wait() == 0);
}
