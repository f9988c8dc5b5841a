#include "runtime/siblings.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// From the variables that launchers set.
std::optional<int> rank_in(const std::string& variable) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK="})
    if (variable.starts_with(name)) return std::atoi(variable.c_str() + variable.find('=') + 1);
  return std::nullopt;
}

int number_in(const char* name) {
  const char* const value = std::getenv(name);
  return value ? std::atoi(value) : 0;
}

std::optional<pid_t> process_number(const std::string& name) {
  if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::atoi(name.c_str());
}

/// The processes that `parent` started. If the kernel keeps no list of them, all processes: each must be asked for its
/// parent.
std::vector<pid_t> candidates(pid_t parent) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator{fmt::format("/proc/{}/task", parent), ignored}) {
    std::ifstream children{thread.path() / "children"};
    found.insert(found.end(), std::istream_iterator<pid_t>{children}, {});
  }
  if (!found.empty()) return found;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc", ignored})
    if (const auto process = process_number(entry.path().filename())) found.push_back(*process);
  return found;
}

/// The fields of "/proc/12/stat": "12 (a name) T 10 …". The name may hold any characters.
struct Status {
  std::string name;
  char state = 0;
  pid_t parent = 0;
};

std::optional<Status> status_of(pid_t process) {
  std::string line;
  std::getline(std::ifstream{fmt::format("/proc/{}/stat", process)}, line);
  const auto begin = line.find('(');
  const auto end = line.rfind(')');
  if (end == std::string::npos || end + 4 > line.size()) return std::nullopt;
  return Status{line.substr(begin + 1, end - begin - 1), line[end + 2], std::atoi(line.c_str() + end + 4)};
}

std::vector<std::string> environment_of(pid_t process) {
  std::ifstream file{fmt::format("/proc/{}/environ", process), std::ios::binary};
  std::vector<std::string> variables;
  for (std::string variable; std::getline(file, variable, '\0');) variables.push_back(variable);
  return variables;
}

}  // namespace

std::optional<int> rank_from_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return std::nullopt;
}

std::vector<int> SiblingView::missing(const std::set<int>& ranks) const {
  std::vector<int> missing;
  std::ranges::copy_if(ranks, std::back_inserter(missing), [&](int rank) {
    return std::ranges::none_of(processes, [&](const Process& each) { return each.rank == rank; });
  });
  return missing;
}

SiblingView look_at_siblings() {
  SiblingView view;
  const pid_t parent = ::getppid();
  const auto launcher = status_of(parent);
  for (const pid_t process : candidates(parent)) {
    const auto status = status_of(process);
    if (!status || status->parent != parent) continue;
    const auto variables = environment_of(process);
    const auto with_rank = std::ranges::find_if(variables, [](const auto& each) { return rank_in(each).has_value(); });
    if (with_rank != variables.end()) {
      view.processes.push_back({*rank_in(*with_rank), status->state == 'T'});
    } else if (variables.empty() || (launcher && status->name == launcher->name)) {
      ++view.nameless;
    }
  }
  std::ranges::sort(view.processes, {}, &SiblingView::Process::rank);
  return view;
}

bool has_sibling_with(const std::string& variable) {
  const pid_t parent = ::getppid();
  return std::ranges::any_of(candidates(parent), [&](pid_t process) {
    const auto status = status_of(process);
    if (!status || status->parent != parent) return false;
    const auto variables = environment_of(process);
    return std::ranges::find(variables, variable) != variables.end();
  });
}

std::vector<std::string> names_of_ancestors() {
  std::vector<std::string> names;
  for (pid_t process = ::getppid(); process > 0;) {
    const auto status = status_of(process);
    if (!status) break;
    names.push_back(status->name);
    process = status->parent;
  }
  return names;
}

std::set<int> ranks_if_all_are_here() {
  std::set<int> ranks;
  const int count = ranks_on_this_node();
  for (int rank = 0; rank < count && count == number_in("OMPI_COMM_WORLD_SIZE"); ++rank) ranks.insert(rank);
  return ranks;
}

int ranks_on_this_node() {
  return number_in("OMPI_COMM_WORLD_LOCAL_SIZE");
}

}  // namespace lockstep
