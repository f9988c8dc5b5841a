#include "apps/lockstep-run/process_tree.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/descriptor.hpp"
#include "core/cluster/launch.hpp"

namespace lockstep::run {

namespace {

namespace fs = std::filesystem;

/// Of the file "status" of a process; empty if it has ended.
std::string line_of_status(const fs::path& process, std::string_view beginning) {
  std::ifstream status{process / "status"};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(beginning)) return line.substr(beginning.size());
  return {};
}

/// As /proc numbers them, which may be mounted for an outer namespace of processes.
std::vector<pid_t> shown_children_of(const fs::path& process) {
  std::vector<pid_t> found;
  std::error_code ended;
  for (fs::directory_iterator thread{process / "task", ended}, end; !ended && thread != end; thread.increment(ended)) {
    std::ifstream children{thread->path() / "children"};
    found.insert(found.end(), std::istream_iterator<pid_t>{children}, {});
  }
  return found;
}

fs::path shown_folder(pid_t shown) {
  return fmt::format("/proc/{}", shown);
}

bool shows_own_numbers() {
  std::error_code none;
  return fs::read_symlink("/proc/self", none) == std::to_string(::getpid());
}

/// The numbers of a process in the namespace that /proc shows and in those below, to its own.
std::vector<pid_t> numbers_of(const fs::path& process) {
  std::istringstream numbers{line_of_status(process, "NSpid:")};
  return {std::istream_iterator<pid_t>{numbers}, {}};
}

/// The number of a process that this one has started, in its namespace; 0 if it has ended.
pid_t own_number(pid_t shown) {
  const std::size_t depth = numbers_of("/proc/self").size();
  const std::vector<pid_t> numbers = numbers_of(shown_folder(shown));
  return depth > 0 && numbers.size() >= depth ? numbers[depth - 1] : 0;
}

}  // namespace

fs::path folder_of(pid_t process) {
  if (process == ::getpid()) return "/proc/self";
  if (shows_own_numbers()) return shown_folder(process);
  std::vector<pid_t> below = shown_children_of("/proc/self");
  for (std::size_t index = 0; index < below.size(); ++index) {
    const fs::path folder = shown_folder(below[index]);
    if (own_number(below[index]) == process) return folder;
    const std::vector<pid_t> children = shown_children_of(folder);
    below.insert(below.end(), children.begin(), children.end());
  }
  return "/proc/none";
}

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found = shown_children_of(folder_of(process));
  if (!shows_own_numbers()) {
    std::ranges::transform(found, found.begin(), own_number);
    std::erase(found, 0);
  }
  return found;
}

std::vector<pid_t> descendants_of(pid_t process) {
  std::vector<pid_t> found = children_of(process);
  for (std::size_t index = 0; index < found.size(); ++index) {
    const std::vector<pid_t> children = children_of(found[index]);
    found.insert(found.end(), children.begin(), children.end());
  }
  return found;
}

bool is_rank(pid_t process) {
  std::ifstream environment{folder_of(process) / "environ", std::ios::binary};
  for (std::string variable; std::getline(environment, variable, '\0');) {
    for (const LauncherVariables& each : launcher_variables) {
      const std::string name = each.rank_of_mpi;
      if (!variable.starts_with(name + '=')) continue;
      // What this process has itself, all of its descendants may have.
      const char* const own = std::getenv(name.c_str());
      if (!own || variable.substr(name.size() + 1) != own) return true;
    }
  }
  return false;
}

bool handles(pid_t process, int signal) {
  const std::string handled = line_of_status(folder_of(process), "SigCgt:\t");
  return (std::strtoull(handled.c_str(), nullptr, 16) >> (signal - 1) & 1) != 0;
}

bool signal_if(pid_t process, int signal, const std::function<bool()>& condition) {
  // glibc has a function for it since 2.36 only.
  const Descriptor same{static_cast<int>(::syscall(SYS_pidfd_open, process, 0))};
  const bool has_ended = same.get() < 0 && errno == ESRCH;
  if (has_ended || !condition()) return false;
  // Old kernels have no such descriptors, and some containers forbid them.
  return same.get() < 0 ? ::kill(process, signal) == 0
                        : ::syscall(SYS_pidfd_send_signal, same.get(), signal, nullptr, 0) == 0;
}

}  // namespace lockstep::run
