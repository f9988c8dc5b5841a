// Processes that the kernel kills when memory runs out, as their control groups count them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep {

/// Says of processes that are gone whether the kernel killed them for memory. It reads the counters of their groups,
/// which do not say which process was killed, so a kill counts for as long as the end of a large process takes. Works
/// with versions 1 and 2 of control groups; where there are none, nothing is known.
class MemoryKills {
 public:
  using Clock = std::chrono::steady_clock;

  /// `root` is where /proc and /sys are.
  explicit MemoryKills(std::filesystem::path root = "/") : root_{std::move(root)} {}

  /// From now on. The process must be alive.
  void watch(pid_t process);

  /// Notes when a counter rises. May be called often: it reads once a second.
  void look(Clock::time_point now = Clock::now());

  /// "the kernel killed it for memory (memory.max of /sys/fs/cgroup/job is 512 MiB)"; empty if nothing says so.
  std::string told_of(pid_t process, Clock::time_point now = Clock::now());

 private:
  /// A group or one that holds it. Each may have a limit.
  struct Level {
    std::filesystem::path folder;
    std::uint64_t times_full;  ///< when it was first looked at
  };
  struct Group {
    std::filesystem::path counter;
    std::uint64_t kills;
    std::optional<Clock::time_point> rose = {};
    std::vector<Level> levels = {};  ///< the innermost first
  };

  void count(Clock::time_point now);
  std::string limit_that_was_reached(const Group& group) const;

  std::filesystem::path root_;
  std::vector<Group> groups_;
  std::map<pid_t, std::size_t> group_of_;
  Clock::time_point looked_;
};

}  // namespace lockstep
