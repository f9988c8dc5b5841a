#include "job/runtime/siblings.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// What the launcher of this process told this one, or another that it has started.
std::optional<LaunchPlace> place_in(const ReadVariable& variable) {
  return find_place(variable, nearest_launcher());
}

std::optional<pid_t> process_number(const std::string& name) {
  if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::atoi(name.c_str());
}

/// Whether a file could not be read for want of descriptors or memory, so that what was not seen may be there.
thread_local bool has_lacked_files = false;

void note_lack(int error) {
  if (error == EMFILE || error == ENFILE || error == ENOMEM) has_lacked_files = true;
}

/// A stream does not say why it failed: for want of memory, or because the process has ended (ESRCH).
void note_lack(const std::ifstream& file) {
  if (file.bad() && errno != ESRCH) has_lacked_files = true;
}

std::ifstream open_file(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file{path, std::ios::binary};
  if (!file) note_lack(errno);
  return file;
}

/// The entries of a folder that is there.
template <class Visit>
void for_each_entry(const std::filesystem::path& folder, Visit&& visit) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry{folder, error}, end; !error && entry != end; entry.increment(error))
    visit(entry->path());
  note_lack(error.value());
}

/// The processes that `parent` started; if the kernel keeps no list of them, all, each to be asked for its parent.
std::vector<pid_t> candidates(pid_t parent) {
  std::vector<pid_t> found;
  for_each_entry(fmt::format("/proc/{}/task", parent), [&](const std::filesystem::path& thread) {
    std::ifstream children = open_file(thread / "children");
    found.insert(found.end(), std::istream_iterator<pid_t>{children}, {});
  });
  if (!found.empty()) return found;
  for_each_entry("/proc", [&](const std::filesystem::path& entry) {
    if (const auto process = process_number(entry.filename())) found.push_back(*process);
  });
  return found;
}

/// The fields of "/proc/12/stat": "12 (a name) T 10 …". The name may hold any characters.
struct Status {
  std::string name;
  char state = 0;
  pid_t parent = 0;
  unsigned long began = 0;  ///< when, in ticks of the system
  unsigned long bytes = 0;  ///< of its memory: none any more when it ends
};

std::optional<Status> status_of(pid_t process) {
  std::string line;
  std::ifstream file = open_file(fmt::format("/proc/{}/stat", process));
  std::getline(file, line);
  note_lack(file);
  const auto begin = line.find('(');
  const auto end = line.rfind(')');
  if (end == std::string::npos || end + 4 > line.size()) return std::nullopt;
  Status status{.name = line.substr(begin + 1, end - begin - 1)};
  // Its fields 3, 4, 22 and 23.
  (void)std::sscanf(line.c_str() + end + 2,
                    "%c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu", &status.state,
                    &status.parent, &status.began, &status.bytes);
  return status;
}

/// As "NAME=value", each with a zero at its end.
std::string environment_of(pid_t process) {
  std::ifstream file = open_file(fmt::format("/proc/{}/environ", process));
  std::string variables;
  for (std::array<char, 4096> part; file.read(part.data(), part.size()) || file.gcount() > 0;)
    variables.append(part.data(), static_cast<std::size_t>(file.gcount()));
  note_lack(file);
  return variables;
}

/// What follows `beginning` in the first variable that begins so; null if none does.
const char* after(std::string_view beginning, const std::string& variables) {
  std::size_t first = 0;
  while (variables.compare(first, beginning.size(), beginning) != 0) {
    first = variables.find('\0', first);
    if (first++ == variables.npos) return nullptr;
  }
  return variables.c_str() + first + beginning.size();
}

ReadVariable reading(const std::string& variables) {
  return [&variables](std::string_view name) { return after(fmt::format("{}=", name), variables); };
}

/// The rank of a process that was seen before. Environments are long, and each rank looks at those of all.
struct Known {
  int rank;
  unsigned long began;  ///< see Status
};
thread_local std::map<pid_t, Known> known_processes;

/// By the environment that this process was started with: MPI without a launcher sets such variables too.
std::optional<LaunchPlace> own_place() {
  static const std::string variables = environment_of(::getpid());
  return place_in(reading(variables));
}

}  // namespace

std::optional<int> rank_from_launcher() {
  const auto place = own_place();
  return place ? std::optional{place->rank} : std::nullopt;
}

std::vector<int> SiblingView::missing(const std::set<int>& ranks) const {
  std::vector<int> missing;
  if (!is_whole) return missing;
  std::ranges::copy_if(ranks, std::back_inserter(missing), [&](int rank) {
    return std::ranges::none_of(processes, [&](const Process& each) { return each.rank == rank; });
  });
  return missing;
}

SiblingView look_at_siblings(Look look) {
  SiblingView view;
  has_lacked_files = false;
  const pid_t parent = ::getppid();
  const auto launcher = status_of(parent);
  for (const pid_t process : candidates(parent)) {
    const auto known = known_processes.find(process);
    if (look == Look::for_others && known != known_processes.end()) {
      view.processes.push_back({known->second.rank, false, process});
      continue;
    }
    const auto status = status_of(process);
    if (!status || status->parent != parent) continue;
    if (known != known_processes.end() && known->second.began == status->began && status->bytes > 0) {
      view.processes.push_back({known->second.rank, status->state == 'T', process});
      continue;
    }
    const std::string variables = environment_of(process);
    // Until it runs its own program, which has another environment.
    const bool is_copy = launcher && status->name == launcher->name;
    if (const auto place = place_in(reading(variables))) {
      view.processes.push_back({place->rank, status->state == 'T', process});
      if (!is_copy) known_processes[process] = {place->rank, status->began};
    } else if (variables.empty() || is_copy) {
      ++view.nameless;
    }
  }
  std::ranges::sort(view.processes, {}, &SiblingView::Process::rank);
  view.is_whole = !has_lacked_files;
  return view;
}

Joined how_far(pid_t process) {
  bool makes_runtime = false;
  bool has_threads = false;
  has_lacked_files = false;
  for_each_entry(fmt::format("/proc/{}/task", process), [&](const std::filesystem::path& thread) {
    std::string name;
    std::ifstream file = open_file(thread / "comm");
    if (!std::getline(file, name)) return;
    has_threads = true;
    makes_runtime = makes_runtime || name == thread_of_runtime;
  });
  if (makes_runtime) return Joined::runtime;
  if (has_lacked_files || !has_threads) return Joined::unknown;
  // What MPI maps when it starts: its plug-ins, and the memory that the ranks of a node share.
  constexpr std::string_view names[] = {"/mca_", "/vader_segment.", "/sm_segment.", "/mpich_shm_", "/Intel_MPI_"};
  std::ifstream maps = open_file(fmt::format("/proc/{}/maps", process));
  if (!maps) return Joined::maybe_mpi;
  for (std::string line; std::getline(maps, line);)
    for (const std::string_view name : names)
      if (line.find(name) != std::string::npos) return Joined::mpi;
  return Joined::nothing;
}

std::string program_of(pid_t process) {
  const auto status = status_of(process);
  return status ? status->name : std::string{};
}

void end_siblings_like_launcher(SiblingsToEnd which) {
  const auto launcher = nearest_launcher();
  if (launcher == LauncherKind::slurm) which = SiblingsToEnd::stopped;
  if (launcher != LauncherKind::pmi && launcher != LauncherKind::slurm) return;
  for (const auto& each : look_at_siblings().processes)
    if (each.id != ::getpid() && (each.stopped || which == SiblingsToEnd::all)) (void)::kill(each.id, SIGKILL);
}

bool has_sibling_with(const std::string& variable) {
  const pid_t parent = ::getppid();
  return std::ranges::any_of(candidates(parent), [&](pid_t process) {
    const auto status = status_of(process);
    if (!status || status->parent != parent) return false;
    const std::string variables = environment_of(process);
    const char* const rest = after(variable, variables);
    return rest && *rest == '\0';
  });
}

std::optional<LauncherKind> nearest_launcher() {
  static const std::optional<LauncherKind> found = []() -> std::optional<LauncherKind> {
    for (pid_t process = ::getppid(); process > 0;) {
      const auto status = status_of(process);
      if (!status) break;
      if (const auto kind = launcher_of_name(status->name)) return kind;
      process = status->parent;
    }
    return std::nullopt;
  }();
  return found;
}

std::set<int> ranks_if_all_are_here() {
  const LaunchPlace place = own_place().value_or(LaunchPlace{});
  std::set<int> ranks;
  if (place.processes_here == place.processes)
    for (int rank = 0; rank < place.processes; ++rank) ranks.insert(rank);
  return ranks;
}

int ranks_on_this_node() {
  return own_place().value_or(LaunchPlace{}).processes_here;
}

}  // namespace lockstep
