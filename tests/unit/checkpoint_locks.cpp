// One training a folder: who gets it, who is told what, and what stays of locks in the place of files.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "checkpoint_use_support.hpp"
#include "core/base/descriptor.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "support/quiet_log.hpp"
#include "support/run_tests.hpp"
#include "sync/checkpoint/checkpoint_writer.hpp"
#include "sync/checkpoint/exclusive_use.hpp"
#include "sync/checkpoint/folder_lock.hpp"

using namespace lockstep;
using namespace lockstep::test;
using FileSystem = ExclusiveUse::Options::FileSystem;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

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
    REQUIRE(winners(2 + race % 7, use_in(folder, file_system)) == 1);
    REQUIRE(winners(2 + race % 7, use_in(folder, file_system)) == 1);  // where one was before
  }
}

TEST_CASE("one of any number takes the folder of a killed process over") {
  const QuietLog quiet;
  const FileSystem file_system = GENERATE(FileSystem::as_it_is, FileSystem::without_locks);
  CAPTURE(file_system);
  for (int race = 0; race < races() / 4; ++race) {
    const TemporaryDirectory folder;
    // Longer than a busy machine keeps the thread waiting that renews the winner's.
    const auto options = use_in(folder, file_system, {.renewed_every = 8ms, .lost_after = 240ms});
    { const Holder killed{options}; }
    REQUIRE(winners(2 + race % 7, options) == 1);
  }
}

TEST_CASE("who is refused is told the other's host and process, and since when it is there") {
  const FileSystem file_system = GENERATE(FileSystem::as_it_is, FileSystem::without_locks);
  const TemporaryDirectory folder;
  const auto options = use_in(folder, file_system);
  std::string host(256, '\0');
  REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
  host = host.c_str();
  Holder other{options};
  CHECK_THAT(refusal_of(options), Catch::StartsWith("run1 is in use by process " + std::to_string(other.id()) +
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
  auto options = use_in(folder, file_system, {.renewed_every = 8ms, .lost_after = 80ms});
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

TEST_CASE("all that a process writes to a folder shares the use of it, which ends with the last") {
  const TemporaryDirectory folder;
  const fs::path checkpoints = folder.path() / "new" / "run1";
  auto one = lock_folder(checkpoints, "one");
  auto other = lock_folder(checkpoints / ".." / "run1", "other");
  CHECK(one == other);
  ExclusiveUse::Options third{.file = checkpoints / ".lock", .lease = "", .name = "third", .expected = "another"};
  one.reset();
  CHECK(is_held(third));
  other.reset();
  CHECK_FALSE(is_held(third));
}

TEST_CASE("a lock whose file was removed is taken again, unless another process has it now") {
  const TemporaryDirectory folder;
  const auto options = use_in(folder, FileSystem::as_it_is);
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
  auto options = use_in(folder, FileSystem::as_it_is);
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

TEST_CASE("a link in the place of the lock's file is not followed") {
  const TemporaryDirectory folder;
  const fs::path notes = folder.write("notes", "mine");
  fs::create_symlink(notes, folder.path() / ".lock");
  CHECK_THROWS_WITH(ExclusiveUse{use_in(folder, FileSystem::as_it_is)}, Catch::Contains(".lock: cannot be locked: "));
  CHECK(read_file(notes) == "mine");
}

TEST_CASE("whoever may write to the folder may lock it, whatever the umask") {
  const FileSystem file_system = GENERATE(FileSystem::as_it_is, FileSystem::without_locks);
  const TemporaryDirectory folder;
  ::chmod(folder.path().c_str(), 02770);
  const mode_t before = ::umask(0077);
  const ExclusiveUse use{use_in(folder, file_system)};
  ::umask(before);
  const auto mode_of = [&](const char* name) {
    struct stat status = {};
    REQUIRE(::stat((folder.path() / name).c_str(), &status) == 0);
    return status.st_mode & 07777;
  };
  CHECK(mode_of(".lock") == 0660);
  if (file_system == FileSystem::without_locks) CHECK(mode_of(".lease") == 02770);
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
    const ExclusiveUse use{use_in(folder, FileSystem::without_locks)};
    for (const char* each : {".lock", ".lease"}) CHECK(owner_of(each) == nobody);
    for (const auto& entry : fs::directory_iterator{folder.path() / ".lease"}) CHECK(owner_of(entry.path()) == nobody);
  }
  const fs::path of_root = folder.write("of root", ""), lock = folder.path() / ".lock";
  ::chmod(of_root.c_str(), 0600);
  for (const bool has_both_names : {true, false}) {
    fs::remove(lock);
    has_both_names ? fs::create_hard_link(of_root, lock) : fs::rename(of_root, lock);
    const ExclusiveUse use{use_in(folder, FileSystem::as_it_is)};
    CHECK(owner_of(lock) == 0);
    CHECK(fs::status(lock).permissions() == fs::perms{0600});
  }
}
