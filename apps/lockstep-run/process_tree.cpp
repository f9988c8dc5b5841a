#include "apps/lockstep-run/process_tree.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "cluster/launch.hpp"

namespace lockstep::run {

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found;
  std::error_code ignored;  // it may have ended
  for (const auto& thread : std::filesystem::directory_iterator{fmt::format("/proc/{}/task", process), ignored}) {
    std::ifstream children{thread.path() / "children"};
    found.insert(found.end(), std::istream_iterator<pid_t>{children}, {});
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
  std::ifstream environment{fmt::format("/proc/{}/environ", process), std::ios::binary};
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
  constexpr std::string_view handled = "SigCgt:\t";
  std::ifstream status{fmt::format("/proc/{}/status", process)};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(handled))
      return (std::strtoull(line.c_str() + handled.size(), nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

}  // namespace lockstep::run
