// One training a folder: who gets it, who is told what, and what the killed and the stopped leave.
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "base/descriptor.hpp"
#include "checkpoint/checkpoint_writer.hpp"
#include "checkpoint/exclusive_use.hpp"
#include "checkpoint/folder_lock.hpp"
#include "checkpoint/shared_counter.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "support/quiet_log.hpp"
#include "support/run_tests.hpp"

using namespace lockstep;
using lockstep::test::CapturedStderr;
using lockstep::test::ChildProcess;
using lockstep::test::eventually;
using lockstep::test::QuietLog;
using lockstep::test::read_file;
using lockstep::test::skip;
using lockstep::test::TemporaryDirectory;
using FileSystem = ExclusiveUse::Options::FileSystem;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

/// Of an open file of its own, as another process's.
ExclusiveUse::Options in(const TemporaryDirectory& folder, FileSystem file_system,
                         LeaseTimes times = {.renewed_every = 8ms, .lost_after = 60s}) {
  return {.file = folder.path() / ".lock",
          .lease = folder.path() / ".lease",
          .name = "run1",
          .expected = "another",
          .file_system = file_system,
          .lease_times = times};
}

/// How many of `starters` that begin at the same moment get the use of it.
int winners(int starters, const ExclusiveUse::Options& options) {
  std::atomic<int> won{0};
  std::barrier together{starters};
  const auto start = [&] {
    together.arrive_and_wait();
    std::unique_ptr<ExclusiveUse> use;
    try {
      use = std::make_unique<ExclusiveUse>(options);
      ++won;
    } catch (const ConfigError&) {
    }
    together.arrive_and_wait();  // until all have tried
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < starters; ++i) threads.emplace_back(start);
  }
  return won;
}

std::string refusal(const ExclusiveUse::Options& options) {
  try {
    const ExclusiveUse use{options};
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

/// A process that uses it until it is killed.
class Holder {
 public:
  explicit Holder(const ExclusiveUse::Options& options)
      : mark_{options.file.string() + ".held"}, process_{[&] {
          const ExclusiveUse use{options};
          std::ofstream{mark_};
          ::pause();
          return 0;
        }} {
    REQUIRE(eventually([&] { return fs::exists(mark_); }));
  }
  ~Holder() { fs::remove(mark_); }

  pid_t id() const { return process_.id(); }
  void kill() { process_.signal(SIGKILL); }

 private:
  fs::path mark_;
  ChildProcess process_;
};

bool is_held(const ExclusiveUse::Options& options) {
  return refusal(options) != "none";
}

int races() {
  const char* const text = std::getenv("LOCKSTEP_LOCK_RACES");
  return text && *text ? std::atoi(text) : 20;
}

void write_step(CheckpointWriter& writer, std::int64_t step) {
  const Tensor weights = Tensor::scalar(1.0);
  writer.write({.step = step}, {{"weights.safetensors", {{"w", weights.view()}}}}, Stream::host());
  writer.wait();
}

}  // namespace

TEST_CASE("one of any number that start at the same moment gets the folder") {
  const QuietLog quiet;
  const FileSystem file_system = GENERATE(FileSystem::as_it_is, FileSystem::without_locks);
  CAPTURE(file_system);
  for (int race = 0; race < races(); ++race) {
    const TemporaryDirectory folder;
    REQUIRE(winners(2 + race % 7, in(folder, file_system)) == 1);
    REQUIRE(winners(2 + race % 7, in(folder, file_system)) == 1);  // where one was before
  }
}

TEST_CASE("one of any number takes the folder of a killed process over") {
  const QuietLog quiet;
  const FileSystem file_system = GENERATE(FileSystem::as_it_is, FileSystem::without_locks);
  CAPTURE(file_system);
  for (int race = 0; race < races() / 4; ++race) {
    const TemporaryDirectory folder;
    // Longer than a busy machine keeps the thread waiting that renews the winner's.
    const auto options = in(folder, file_system, {.renewed_every = 8ms, .lost_after = 240ms});
    { const Holder killed{options}; }
    REQUIRE(winners(2 + race % 7, options) == 1);
  }
}

TEST_CASE("who is refused is told the other's host and process, and since when it is there") {
  const FileSystem file_system = GENERATE(FileSystem::as_it_is, FileSystem::without_locks);
  const TemporaryDirectory folder;
  const auto options = in(folder, file_system);
  std::string host(256, '\0');
  REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
  host = host.c_str();
  Holder other{options};
  CHECK_THAT(refusal(options), Catch::StartsWith("run1 is in use by process " + std::to_string(other.id()) +
                                                 " on host " + host + " since 20") &&
                                   Catch::EndsWith("Z; expected another"));
}

TEST_CASE("a file that says nothing of its holder is no obstacle") {
  for (const char* text : {"", "no JSON", "[]", R"({"host":1})", R"({"host":"a","process":"b"})"})
    CHECK(describe(parse_holder(text)) == "another process");
  CHECK(describe(parse_holder(line_about({.host = "a\nb", .process = 7, .since = "now", .key = "k"}))) ==
        R"(process 7 on host a\x0ab since now)");
}

TEST_CASE("a process that waits for another begins when that ends") {
  const FileSystem file_system = GENERATE(FileSystem::as_it_is, FileSystem::without_locks);
  const TemporaryDirectory folder;
  auto options = in(folder, file_system, {.renewed_every = 8ms, .lost_after = 80ms});
  Holder other{options};
  options.patience = 60s;
  CapturedStderr captured;
  std::atomic<bool> began{false};
  std::jthread waiting{[&] { began = !is_held(options); }};
  REQUIRE(eventually([&] { return captured.text().find("run1: waits for process") != std::string::npos; }));
  CHECK_FALSE(began);
  other.kill();
  CHECK(eventually([&] { return began.load(); }));
}

TEST_CASE("a process that was stopped until another took its lease writes no more") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const auto options = in(folder, FileSystem::without_locks, {.renewed_every = 8ms, .lost_after = 80ms});
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
  auto options = in(folder, FileSystem::without_locks, {.renewed_every = 100ms, .lost_after = 300ms});
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
  auto options = in(folder, FileSystem::without_locks, {.renewed_every = 1h, .lost_after = 60s});
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

TEST_CASE("all that a process writes to a folder shares the use of it, which ends with the last") {
  const TemporaryDirectory folder;
  const fs::path checkpoints = folder.path() / "new" / "run1";
  auto one = hold_folder(checkpoints, "one");
  auto other = hold_folder(checkpoints / ".." / "run1", "other");
  CHECK(one == other);
  ExclusiveUse::Options third{.file = checkpoints / ".lock", .lease = "", .name = "third", .expected = "another"};
  one.reset();
  CHECK(is_held(third));
  other.reset();
  CHECK_FALSE(is_held(third));
}

TEST_CASE("a lock whose file was removed is taken again, unless another process has it now") {
  const TemporaryDirectory folder;
  const auto options = in(folder, FileSystem::as_it_is);
  ExclusiveUse use{options};
  fs::remove(options.file);
  CHECK_NOTHROW(use.require());
  CHECK(is_held(options));
  fs::remove(options.file);
  const ExclusiveUse other{options};
  CHECK_THROWS_AS(use.require(), ConfigError);
}

TEST_CASE("a file that takes the place of the locked one is locked as well, before and after") {
  const TemporaryDirectory folder;
  auto options = in(folder, FileSystem::as_it_is);
  options.content = ExclusiveUse::Content::own;
  ExclusiveUse use{options};
  const fs::path next = folder.path() / "next";
  use.extend_to(Descriptor{::open(next.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)}.get());
  CHECK(is_held(options));
  fs::rename(next, options.file);
  CHECK(is_held(options));
  CHECK_NOTHROW(use.require());
}

TEST_CASE("a folder of checkpoints that is lost between two of them is made and locked again") {
  const TemporaryDirectory folder;
  const fs::path checkpoints = folder.path() / "run1";
  CheckpointWriter writer{checkpoints, 3};
  write_step(writer, 1);
  fs::remove_all(checkpoints);
  write_step(writer, 2);
  CHECK(fs::exists(checkpoints / "latest" / "manifest.json"));
  CHECK(is_held({.file = checkpoints / ".lock", .lease = "", .name = "other", .expected = "another"}));
}

TEST_CASE("a folder that cannot be locked is a warning, once, and is written to all the same") {
  const TemporaryDirectory folder;
  fs::create_symlink("elsewhere", folder.path() / ".lock");
  CapturedStderr captured;
  {
    CheckpointWriter writer{folder.path(), 3};
    for (const std::int64_t step : {1, 2}) write_step(writer, step);
  }
  CHECK(fs::exists(folder.path() / "step-2" / "manifest.json"));
  const std::string told = "another training could use " + folder.path().string() + " at the same time: ";
  CHECK_THAT(captured.text(), Catch::Contains(told) && Catch::Contains(".lock: cannot be locked: "));
  CHECK(captured.text().find(told) == captured.text().rfind(told));
}

TEST_CASE("a file in the place of the folder is told once, by what writes there, and not as a lock") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "file";
  std::ofstream{file} << "text";
  CapturedStderr captured;
  {
    CheckpointWriter writer{file, 3};
    CHECK_THROWS_WITH(write_step(writer, 1), "checkpoint " + file.string() + ": is a regular file; expected a folder");
  }
  CHECK(captured.text().empty());
}

TEST_CASE("optimizers go on from the steps that older releases counted together, with a warning") {
  const Tensor shared = Tensor::scalar(std::int64_t{7}), second = Tensor::scalar(std::int64_t{0}),
               third = Tensor::scalar(std::int64_t{0}), named = Tensor::scalar(std::int64_t{0});
  const std::vector<NamedTensor> all{{"optimizer@steps", shared.view()},
                                     {"optimizer_1@steps", second.view()},
                                     {"optimizer_2@steps", third.view()},
                                     {"mine@steps", named.view()}};
  const auto restored = [&](const std::vector<std::string>& there) {
    std::vector<NamedTensor> wanted = all;
    SharedCounter counter;
    counter.take_missing(wanted, [&](std::string_view name) { return std::ranges::find(there, name) != there.end(); });
    counter.restore("run1");
    std::vector<std::string> left;
    for (const NamedTensor& each : wanted) left.push_back(each.name);
    return left;
  };
  CapturedStderr captured;
  const std::vector<std::string> names{"optimizer@steps", "optimizer_1@steps", "optimizer_2@steps", "mine@steps"};
  CHECK(restored(names) == names);
  CHECK(restored({}) == names);  // what is missing is told
  CHECK(captured.text().empty());
  CHECK(restored({"optimizer@steps", "optimizer_2@steps"}) ==
        std::vector<std::string>{"optimizer@steps", "optimizer_2@steps", "mine@steps"});
  CHECK(second.view().elements<std::int64_t>()[0] == 7);
  CHECK(third.view().elements<std::int64_t>()[0] == 0);
  CHECK_THAT(captured.text(),
             Catch::Contains("checkpoint run1: has no 'optimizer_1@steps'; takes the 7 steps of 'optimizer@steps', in "
                             "which older releases counted the steps of all optimizers"));
}

TEST_CASE("a link in the place of the lock's file is not followed") {
  const TemporaryDirectory folder;
  const fs::path notes = folder.write("notes", "mine");
  fs::create_symlink(notes, folder.path() / ".lock");
  CHECK_THROWS_WITH(ExclusiveUse{in(folder, FileSystem::as_it_is)}, Catch::Contains(".lock: cannot be locked: "));
  CHECK(read_file(notes) == "mine");
}

TEST_CASE("whoever may write to the folder may lock it, whatever the umask") {
  const FileSystem file_system = GENERATE(FileSystem::as_it_is, FileSystem::without_locks);
  const TemporaryDirectory folder;
  ::chmod(folder.path().c_str(), 02770);
  const mode_t before = ::umask(0077);
  const ExclusiveUse use{in(folder, file_system)};
  ::umask(before);
  const auto mode_of = [&](const char* name) {
    struct stat status = {};
    REQUIRE(::stat((folder.path() / name).c_str(), &status) == 0);
    return status.st_mode & 07777;
  };
  CHECK(mode_of(".lock") == 0660);
  if (file_system == FileSystem::without_locks) CHECK(mode_of(".lease") == 02770);
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
    ExclusiveUse::Options options = in(folder, FileSystem::without_locks, {.renewed_every = 1ms, .lost_after = 2ms});
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
    ExclusiveUse::Options options = in(folder, FileSystem::without_locks, times);
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

TEST_CASE("what root makes in a user's folder to use it belongs to the user, but not a file of root's own") {
  if (::geteuid() != 0) return skip("only root can give files away");
  constexpr uid_t nobody = 65534;
  const TemporaryDirectory folder;
  REQUIRE(::chown(folder.path().c_str(), nobody, nobody) == 0);
  const auto owner_of = [&](const fs::path& name) {
    struct stat status = {};
    REQUIRE(::stat((folder.path() / name).c_str(), &status) == 0);
    return status.st_uid;
  };
  {
    const ExclusiveUse use{in(folder, FileSystem::without_locks)};
    for (const char* each : {".lock", ".lease"}) CHECK(owner_of(each) == nobody);
    for (const auto& entry : fs::directory_iterator{folder.path() / ".lease"}) CHECK(owner_of(entry.path()) == nobody);
  }
  const fs::path of_root = folder.write("of root", ""), lock = folder.path() / ".lock";
  ::chmod(of_root.c_str(), 0600);
  for (const bool has_both_names : {true, false}) {
    fs::remove(lock);
    has_both_names ? fs::create_hard_link(of_root, lock) : fs::rename(of_root, lock);
    const ExclusiveUse use{in(folder, FileSystem::as_it_is)};
    CHECK(owner_of(lock) == 0);
    CHECK(fs::status(lock).permissions() == fs::perms{0600});
  }
}

TEST_CASE("what the use of a lease leaves is gone with it, and what killed starters left goes with the next") {
  const TemporaryDirectory folder;
  fs::create_directory(folder.path() / ".lease-of-a-killed-one");
  (void)folder.write(".lease-of-a-killed-one/key", "");
  const auto long_ago = fs::file_time_type::clock::now() - 1h;
  fs::last_write_time(folder.path() / ".lease-of-a-killed-one", long_ago);
  { const ExclusiveUse use{in(folder, FileSystem::without_locks)}; }
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator{folder.path()}) left.push_back(entry.path().filename());
  CHECK(left == std::vector<std::string>{".lock"});
}
