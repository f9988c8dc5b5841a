// What the counters of control groups say of a process that is gone, and how much memory this one uses.
#include "core/base/memory_kills.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/base/memory_use.hpp"
#include "support/job.hpp"

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

constexpr pid_t rank = 71, other = 72;

/// A machine on which `rank` is in the group /job/ranks, which has no limit of its own, and `other` beside the job.
class Machine {
 public:
  explicit Machine(int version) : version_{version} {
    const std::string line = version == 1 ? "4:cpu,memory:" : "0::";
    write("proc/71/cgroup", "9:pids:/none\n" + line + "/job/ranks\n");
    write("proc/72/cgroup", line + "/other\n");
    for (const char* group : {"job/ranks", "other"}) count(group, 3, 5);
    count("job", 0, 2);
    limit("job/ranks", version == 1 ? "9223372036854771712" : "max");
    limit("job", "536870912");
    limit("other", "1000");
    kills.watch(rank);
    kills.watch(other);
  }

  /// That it has killed so often, and found it full.
  void count(const std::string& group, int killed, int full) const {
    const std::string number = std::to_string(killed);
    if (version_ == 1)
      write(base() + group + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill " + number + "\n");
    else
      write(base() + group + "/memory.events.local",
            "low 0\nmax 9\noom " + std::to_string(full) + "\noom_kill " + number + "\noom_group_kill 7\n");
  }
  void limit(const std::string& group, const std::string& bytes) const {
    write(base() + group + (version_ == 1 ? "/memory.limit_in_bytes" : "/memory.max"), bytes + "\n");
  }
  /// Version 1 alone: the most that it has held.
  void most(const std::string& group, const std::string& bytes) const {
    write(base() + group + "/memory.max_usage_in_bytes", bytes + "\n");
  }

 private:
  void write(const std::filesystem::path& name, const std::string& text) const {
    std::filesystem::create_directories((root_.path() / name).parent_path());
    (void)root_.write(name, text);
  }
  std::string base() const { return version_ == 1 ? "sys/fs/cgroup/memory/" : "sys/fs/cgroup/"; }

  test::TemporaryDirectory root_;
  int version_;

 public:
  MemoryKills kills{root_.path()};
};

}  // namespace

TEST_CASE("a process that the kernel killed for memory is told with the limit that was reached, and no other is") {
  const int version = GENERATE(1, 2);
  CAPTURE(version);
  Machine machine{version};
  // What was counted before is no news.
  CHECK(machine.kills.told_of(rank).empty());
  machine.count("job/ranks", 4, 5);
  CHECK(machine.kills.told_of(rank) == "the kernel killed it for memory");  // of the machine
  machine.count("job", 0, 3);
  machine.most("job", "536870000");
  machine.most("job/ranks", "536870000");
  CHECK_THAT(machine.kills.told_of(rank),
             Catch::StartsWith("the kernel killed it for memory (memory.") && Catch::EndsWith("/job is 512 MiB)"));
  CHECK(machine.kills.told_of(other).empty());
  CHECK(machine.kills.told_of(73).empty());
}

TEST_CASE("a kill for memory that is long ago says nothing of a process that ends now") {
  Machine machine{2};
  const auto now = MemoryKills::Clock::now();
  machine.count("job/ranks", 4, 5);
  machine.kills.look(now);
  CHECK_FALSE(machine.kills.told_of(rank, now + 20s).empty());
  CHECK(machine.kills.told_of(rank, now + 40s).empty());
  machine.count("job/ranks", 5, 5);
  CHECK_FALSE(machine.kills.told_of(rank, now + 50s).empty());
}

TEST_CASE("where a process' group cannot be seen, as in a container, the one that is mounted is asked") {
  const test::TemporaryDirectory root;
  std::filesystem::create_directories(root.path() / "proc/71");
  std::filesystem::create_directories(root.path() / "sys/fs/cgroup");
  (void)root.write("proc/71/cgroup", "0::/../../elsewhere\n");
  (void)root.write("sys/fs/cgroup/memory.events.local", "oom 0\noom_kill 0\n");
  MemoryKills kills{root.path()};
  kills.watch(rank);
  (void)root.write("sys/fs/cgroup/memory.events.local", "oom 1\noom_kill 1\n");
  (void)root.write("sys/fs/cgroup/memory.max", "1000\n");
  CHECK_THAT(kills.told_of(rank), Catch::EndsWith("/sys/fs/cgroup is 1000 bytes)"));
}

TEST_CASE("a process's memory is read from what the kernel says of it") {
  CHECK(parse_memory_use("Name:\trank\nVmHWM:\t   20 kB\nVmRSS:\t    3 kB\nRssAnon:\t 1 kB\n") ==
        MemoryUse{.resident = 3 * 1024, .peak = 20 * 1024});
  CHECK(parse_memory_use("Name:\trank\nState:\tZ (zombie)\n") == MemoryUse{});
  const MemoryUse now = memory_in_use();
  CHECK(now.resident > 1 << 20);
  CHECK(now.peak >= now.resident);
}

TEST_CASE("memory that was freed in pieces goes back to the system, also if a later piece is in use") {
  constexpr std::size_t pieces = 1024, bytes = 64 << 10;  // small enough for the C library's heap
  std::vector<std::vector<char>> all;
  for (std::size_t i = 0; i < pieces; ++i) all.emplace_back(bytes, 'x');
  const std::uint64_t before = memory_in_use().resident;
  all.erase(all.begin(), all.end() - 1);
  return_freed_memory();
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
  (void)before;  // a sanitizer's heap keeps what was freed, and has memory of its own for it
#elif defined __GLIBC__
  CHECK(memory_in_use().resident + pieces * bytes / 2 < before);
#else
  CHECK(memory_in_use().resident <= before);
#endif
  CHECK(all.front().back() == 'x');
}
