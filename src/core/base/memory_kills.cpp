#include "core/base/memory_kills.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "core/base/control_group.hpp"
#include "core/base/element_type.hpp"

namespace lockstep {
namespace {

// The kernel counts at once, and then takes apart what may be hundreds of gigabytes.
constexpr std::chrono::seconds longest_end{30};
constexpr std::chrono::seconds between_looks{1};

/// The number after a word in a file of lines "word number". Without a word, the number that the file begins with.
std::optional<std::uint64_t> number_in(const std::filesystem::path& path, std::string_view word = {}) {
  std::ifstream file{path};
  for (std::string found; found != word && file >> found;) continue;
  std::uint64_t number = 0;
  return file >> number ? std::optional{number} : std::nullopt;
}

// The files of the two versions.
constexpr std::array<std::string_view, 2> counters{"memory.oom_control", "memory.events.local"};
constexpr std::array<std::string_view, 2> limits{"memory.limit_in_bytes", "memory.max"};

/// Version 2 counts how often a group was full and nothing could be freed. In version 1 the most that a group has held
/// must do.
std::uint64_t times_full(const std::filesystem::path& folder) {
  return number_in(folder / counters[1], "oom").value_or(0);
}

bool has_been_full(const std::filesystem::path& folder, std::uint64_t limit) {
  const auto most = number_in(folder / "memory.max_usage_in_bytes");
  return most && *most >= limit - limit / 64;
}

std::string size_of(std::uint64_t bytes) {
  constexpr std::uint64_t mebibyte = 1 << 20;
  return bytes % mebibyte == 0 ? fmt::format("{} MiB", bytes / mebibyte) : fmt::format("{} bytes", bytes);
}

}  // namespace

void MemoryKills::watch(pid_t process) {
  const auto own = find_control_group(root_, fmt::format("{}", process), "memory", counters);
  if (!own) return;
  const std::filesystem::path counter = own->folder / counters[own->version == 1 ? 0 : 1];
  const auto known = std::ranges::find(groups_, counter, &Group::counter);
  group_of_[process] = static_cast<std::size_t>(known - groups_.begin());
  if (known != groups_.end()) return;
  Group group{counter, number_in(counter, "oom_kill").value_or(0)};
  for (std::filesystem::path folder = own->folder;; folder = folder.parent_path()) {
    group.levels.push_back({folder, times_full(folder)});
    if (folder == own->base || folder == folder.parent_path()) break;
  }
  groups_.push_back(std::move(group));
}

void MemoryKills::look(Clock::time_point now) {
  if (now - looked_ >= between_looks) count(now);
}

void MemoryKills::count(Clock::time_point now) {
  looked_ = now;
  for (Group& group : groups_) {
    const std::uint64_t kills = number_in(group.counter, "oom_kill").value_or(group.kills);
    if (kills > group.kills) group.rose = now;
    group.kills = kills;
  }
}

std::string MemoryKills::told_of(pid_t process, Clock::time_point now) {
  count(now);
  const auto found = group_of_.find(process);
  if (found == group_of_.end()) return {};
  const Group& group = groups_[found->second];
  if (!group.rose || now - *group.rose > longest_end) return {};
  const std::string limit = limit_that_was_reached(group);
  return fmt::format("the kernel killed it for memory{}", limit.empty() ? "" : fmt::format(" ({})", limit));
}

std::string MemoryKills::limit_that_was_reached(const Group& group) const {
  const bool first_version = group.counter.filename() == counters[0];
  const std::string_view file = limits[first_version ? 0 : 1];
  for (const Level& level : group.levels) {
    // "max" where there is none, and in version 1 a number beyond all memory.
    const auto limit = number_in(level.folder / file);
    if (!limit || !(first_version ? has_been_full(level.folder, *limit) : times_full(level.folder) > level.times_full))
      continue;
    const std::string folder = level.folder.string();
    return fmt::format("{} of {} is {}", file, folder, size_of(*limit));
  }
  return {};
}

}  // namespace lockstep
