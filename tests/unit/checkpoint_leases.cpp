// Leases, which stand for locks where a file system has none: who loses one, who may look into one, and what is left.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "checkpoint_use_support.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "support/quiet_log.hpp"
#include "support/run_tests.hpp"
#include "sync/checkpoint/exclusive_use.hpp"
#include "sync/checkpoint/lease.hpp"

using namespace lockstep;
using namespace lockstep::test;
using FileSystem = ExclusiveUse::Options::FileSystem;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

TEST_CASE("a process that was stopped until another took its lease writes no more") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const auto options = use_in(folder, FileSystem::without_locks, {.renewed_every = 8ms, .lost_after = 80ms});
  ChildProcess stopped{[&] {
    ExclusiveUse use{options};
    use.require();
    ::raise(SIGSTOP);
    try {
      use.require();
    } catch (const ConfigError& error) {
      const std::string told = "took it; this one writes no more";
      return std::string{error.what()}.ends_with(told) ? 7 : 8;
    }
    return 9;
  }};
  siginfo_t info;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(stopped.id()), &info, WSTOPPED | WNOWAIT) == 0);
  ExclusiveUse use{options};
  stopped.signal(SIGCONT);
  CHECK(stopped.wait() == 7);
  // It left the new one's alone.
  CHECK_NOTHROW(use.require());
}

TEST_CASE("a lease is not lost while its holder is stopped together with whoever waits for it") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  auto options = use_in(folder, FileSystem::without_locks, {.renewed_every = 100ms, .lost_after = 300ms});
  const Holder holder{options};
  options.patience = 1h;
  const fs::path taken = folder.path() / "taken";
  ChildProcess waiting{[&] {
    const ExclusiveUse use{options};
    std::ofstream{taken};
    return 0;
  }};
  for (int pauses = 0; pauses < 2; ++pauses) {
    std::this_thread::sleep_for(150ms);  // the one that waits has looked
    for (const pid_t process : {waiting.id(), holder.id()}) ::kill(process, SIGSTOP);
    std::this_thread::sleep_for(350ms);
    ::kill(waiting.id(), SIGCONT);
    std::this_thread::sleep_for(10ms);  // the holder is continued a little later
    ::kill(holder.id(), SIGCONT);
  }
  std::this_thread::sleep_for(150ms);
  CHECK_FALSE(fs::exists(taken));
  waiting.signal(SIGKILL);
}

TEST_CASE("a lease that cannot be renewed for a while is a warning") {
  const TemporaryDirectory folder;
  const fs::path real = folder.path() / "real", link = folder.path() / "link";
  fs::create_directory(real);
  fs::create_directory_symlink(real, link);
  auto options = use_in(folder, FileSystem::without_locks, {.renewed_every = 1h, .lost_after = 60s});
  options.file = link / ".lock";
  options.lease = link / ".lease";
  ExclusiveUse use{options};
  CapturedStderr captured;
  fs::remove(link);
  fs::create_directory_symlink("link", link);  // whatever is asked of it fails
  CHECK_NOTHROW(use.require());
  CHECK_NOTHROW(use.require());
  CHECK_THAT(captured.text(), Catch::Contains(".lease cannot be renewed: Too many levels of symbolic links"));
  CHECK(captured.text().find("renewed") == captured.text().rfind("renewed"));  // told once
  fs::remove(link);
  fs::create_directory_symlink(real, link);
  CHECK_NOTHROW(use.require());
}

TEST_CASE("a lease that this user cannot look into, or not take over, is told and not waited for") {
  const auto [mode, told] = GENERATE(
      table<mode_t, std::string>({{0, "cannot be read: Permission denied"},
                                  {0555, "cannot be taken over from a process that is gone: Permission denied"}}));
  const TemporaryDirectory folder;
  ::chmod(folder.path().c_str(), 0777);
  fs::create_directory(folder.path() / ".lease");
  (void)folder.write(".lease/key", "");
  ::chmod((folder.path() / ".lease").c_str(), mode);
  ChildProcess other{[&, &told = told] {
    constexpr uid_t nobody = 65534;
    ExclusiveUse::Options options =
        use_in(folder, FileSystem::without_locks, {.renewed_every = 1ms, .lost_after = 2ms});
    // The folders above it may be this user's alone.
    if (::chdir(folder.path().c_str()) != 0 || (::geteuid() == 0 && ::setuid(nobody) != 0)) return 3;
    options.file = ".lock";
    options.lease = ".lease";
    try {
      const ExclusiveUse use{options};
    } catch (const CheckpointError& error) {
      return std::string_view{error.what()}.find(told) != std::string_view::npos ? 0 : 1;
    }
    return 2;
  }};
  CHECK(other.wait() == 0);
  ::chmod((folder.path() / ".lease").c_str(), 0700);
}

TEST_CASE("in a sticky folder, another user's lease is in use, or cannot be taken over") {
  if (::geteuid() != 0) return skip("only root can be two users");
  const TemporaryDirectory folder;
  ::chmod(folder.path().c_str(), 01777);
  const auto as = [&](uid_t user, LeaseTimes times, const std::function<int()>& afterwards) {
    ExclusiveUse::Options options = use_in(folder, FileSystem::without_locks, times);
    if (::chdir(folder.path().c_str()) != 0 || ::setuid(user) != 0) return 3;
    options.file = fmt::format(".lock-{}", user);  // the kernel may let nobody open another user's
    options.lease = ".lease";
    try {
      const ExclusiveUse use{options};
      return afterwards();
    } catch (const Error& error) {
      const std::string_view told = error.what();
      if (told.find("is in use by") != told.npos) return 11;
      return told.find("cannot be taken over from a process that is gone: ") != told.npos ? 12 : 2;
    }
  };
  ChildProcess holder{[&] { return as(65533, {.renewed_every = 8ms, .lost_after = 60s}, ::pause); }};
  const auto is_held = [&] { return fs::exists(folder.path() / ".lease") && !fs::is_empty(folder.path() / ".lease"); };
  REQUIRE(eventually(is_held));
  const auto nobody = [&](LeaseTimes times) {
    ChildProcess other{[&] { return as(65534, times, [] { return 0; }); }};
    return other.wait();
  };
  CHECK(nobody({.renewed_every = 8ms, .lost_after = 60s}) == 11);
  holder.signal(SIGKILL);
  (void)holder.wait();
  CHECK(nobody({.renewed_every = 1ms, .lost_after = 2ms}) == 12);
}

TEST_CASE("another user's lease that is empty again has as long to go as the first time") {
  if (::geteuid() != 0) return skip("only root can be two users");
  const TemporaryDirectory folder;
  ::chmod(folder.path().c_str(), 01777);
  const fs::path path = folder.path() / ".lease";
  constexpr LeaseTimes times{.renewed_every = 5ms, .lost_after = 60s};
  ChildProcess other{[&] {
    Lease lease{path, times};
    const auto attempt = [&] {
      if (::seteuid(65534) != 0) return -1;
      const int made = static_cast<int>(lease.attempt());
      return ::seteuid(0) == 0 ? made : -1;
    };
    const auto renew = [&](int seconds) {
      fs::last_write_time(folder.write(".lease/key", ""), fs::file_time_type::clock::now() + seconds * 1s);
    };
    fs::create_directory(path);
    if (attempt() != static_cast<int>(Lease::Attempt::undecided)) return 1;
    renew(0);
    if (attempt() != static_cast<int>(Lease::Attempt::undecided)) return 2;
    renew(1);
    if (attempt() != static_cast<int>(Lease::Attempt::held)) return 3;
    fs::remove(path / "key");
    std::this_thread::sleep_for(2 * times.renewed_every);
    return attempt() == static_cast<int>(Lease::Attempt::undecided) ? 0 : 4;
  }};
  CHECK(other.wait() == 0);
}

TEST_CASE("what the use of a lease leaves is gone with it, and what killed starters left goes with the next") {
  const TemporaryDirectory folder;
  fs::create_directory(folder.path() / ".lease-of-a-killed-one");
  (void)folder.write(".lease-of-a-killed-one/key", "");
  const auto long_ago = fs::file_time_type::clock::now() - 1h;
  fs::last_write_time(folder.path() / ".lease-of-a-killed-one", long_ago);
  { const ExclusiveUse use{use_in(folder, FileSystem::without_locks)}; }
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator{folder.path()}) left.push_back(entry.path().filename());
  CHECK(left == std::vector<std::string>{".lock"});
}
