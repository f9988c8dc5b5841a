#include "support/job.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cluster/launch.hpp"

extern char** environ;

namespace lockstep::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view marker_variable = "LOCKSTEP_TEST_JOB";
constexpr auto poll_interval = std::chrono::milliseconds{5};

std::string new_marker() {
  static int runs = 0;
  return fmt::format("{}-{}-{}", getpid(), ++runs, Clock::now().time_since_epoch().count());
}

/// This process's environment with `changes` made to it, as "NAME=value".
std::vector<std::string> environment_with(const Environment& changes) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (!changes.contains(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  for (const auto& [name, value] : changes) entries.push_back(name + "=" + value);
  return entries;
}

/// The array of C strings that exec wants; `strings` must outlive it.
std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// What happens between fork and exec: only calls that a child may make there. Returns only where one fails.
void become(char* const* command, char* const* environment, int out, int err) {
  setpgid(0, 0);
  // A test that is interrupted or killed takes its job along.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // Tests may be run by what ignores them, such as nohup.
  for (const int each : {SIGINT, SIGHUP}) signal(each, SIG_DFL);
  const int in = open("/dev/null", O_RDONLY);
  if (in < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) return;
  execvpe(command[0], command, environment);
}

class File {
 public:
  File(const std::filesystem::path& path, int flags) : descriptor_{open(path.c_str(), flags | O_CLOEXEC, 0600)} {
    if (descriptor_ < 0) throw std::system_error{errno, std::generic_category(), path.string()};
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(descriptor_); }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Starts the command in a process group of its own and returns its id.
pid_t start(std::vector<std::string> command, std::vector<std::string> environment, int out, int err) {
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> variables = pointers_to(environment);
  // The pipe closes by itself at exec, and carries errno where there is none to come.
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) throw std::system_error{errno, std::generic_category(), "pipe2"};
  const pid_t child = fork();
  if (child == 0) {
    become(arguments.data(), variables.data(), out, err);
    const int error = errno;
    [[maybe_unused]] const auto written = write(failure[1], &error, sizeof error);
    _exit(127);
  }
  const int fork_error = errno;
  close(failure[1]);
  int error = child < 0 ? fork_error : 0;
  if (child > 0 && read(failure[0], &error, sizeof error) > 0) waitpid(child, nullptr, 0);
  close(failure[0]);
  if (error != 0) throw std::system_error{error, std::generic_category(), "cannot run '" + command[0] + "'"};
  return child;
}

/// The child's status as waitpid gives it, or nothing if it still runs at `deadline`.
std::optional<int> wait_until(pid_t child, Clock::time_point deadline) {
  for (;;) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status;
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(poll_interval);
  }
}

/// The ids of the processes whose environment carries the marker.
std::vector<pid_t> processes_with(std::string_view marker) {
  const std::string wanted = fmt::format("{}={}", marker_variable, marker);
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc"}) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    // A process may go while it is looked at, or be another user's: then it reads as empty.
    std::ifstream file{entry.path() / "environ", std::ios::binary};
    for (std::string variable; std::getline(file, variable, '\0');)
      if (variable == wanted) found.push_back(std::stoi(name));
  }
  return found;
}

bool is_rank(pid_t process) {
  std::ifstream file{fmt::format("/proc/{}/environ", process), std::ios::binary};
  for (std::string variable; std::getline(file, variable, '\0');)
    if (rank_in(variable)) return true;
  return false;
}

std::string describe(pid_t process) {
  std::ifstream file{fmt::format("/proc/{}/cmdline", process), std::ios::binary};
  std::string command{std::istreambuf_iterator<char>{file}, {}};
  std::replace(command.begin(), command.end(), '\0', ' ');
  return fmt::format("{} {}", process, command);
}

/// Ends the run. First mpirun gets the chance to tear its ranks down: those are not in its process group.
int end_by_force(pid_t child, std::string_view marker) {
  kill(-child, SIGTERM);
  std::optional<int> status = wait_until(child, Clock::now() + std::chrono::seconds{2});
  kill(-child, SIGKILL);
  kill_processes(marker);
  return status ? *status : *wait_until(child, Clock::time_point::max());
}

/// Hydra, the launcher of MPICH and of Intel MPI, writes what it says of the end of a job to stdout.
std::string without_words_of_hydra(std::string out) {
  for (const auto& [begin, end] :
       {std::pair{"\n=====", "=====\nYOUR APPLICATION"}, std::pair{"YOUR APPLICATION TERMINATED WITH", "suggestions\n"},
        std::pair{"[mpiexec@", "\n"}, std::pair{"\n=====", ")\n"}, std::pair{"=====", "\n"}}) {
    for (auto at = out.find(begin); at != std::string::npos; at = out.find(begin)) {
      const auto last = out.find(end, at);
      if (last == std::string::npos) break;
      out.erase(at, last + std::strchr(end, '\n') + 1 - end - at);
    }
  }
  return out;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

}  // namespace

Outcome run_command(const std::vector<std::string>& command, const CommandOptions& options) {
  if (command.empty()) throw std::invalid_argument{"run_command: no command"};
  Outcome outcome;
  outcome.marker = new_marker();
  // Files, not pipes: a process that outlives the command cannot keep this one waiting for an end of file.
  const TemporaryDirectory folder;
  Environment changes = options.environment;
  changes.emplace(marker_variable, outcome.marker);
  // mpirun puts what it shares with its ranks into a folder of the host, and removes that where it finds it empty: jobs
  // that run beside each other must not share it.
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"})
    changes.emplace(name, folder.path());
  const auto out_path = folder.path() / "stdout", err_path = folder.path() / "stderr";
  const File out{out_path, O_WRONLY | O_CREAT | O_APPEND}, err{err_path, O_WRONLY | O_CREAT | O_APPEND};

  const Clock::time_point begin = Clock::now();
  const pid_t child = start(command, environment_with(changes), out.descriptor(), err.descriptor());
  std::optional<int> status = wait_until(child, begin + std::chrono::duration_cast<Clock::duration>(options.timeout));
  outcome.timed_out = !status;
  if (!status) status = end_by_force(child, outcome.marker);
  outcome.seconds = Clock::now() - begin;
  outcome.exit_code = WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
  outcome.out = without_words_of_hydra(read_file(out_path));
  outcome.err = read_file(err_path);
  // prterun ends its own texts with one, and then it stands before the first word of the next line.
  std::erase(outcome.err, '\0');
  return outcome;
}

Outcome run_job(int ranks, const std::vector<std::string>& arguments, const CommandOptions& options) {
  const char* program = std::getenv("LOCKSTEP_TRAIN");
  if (!program || !*program)
    throw std::runtime_error{"LOCKSTEP_TRAIN is not set, expected the path of lockstep-train; `meson test` sets it"};
  std::vector<std::string> command{"mpirun", "-n", std::to_string(ranks), program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  CommandOptions with_mpi = options;
  with_mpi.environment.insert(mpi_environment().begin(), mpi_environment().end());
  return run_command(command, with_mpi);
}

const Environment::value_type kills_at_once{"OMPI_MCA_odls_base_sigkill_timeout", "0"};

const Environment& mpi_environment() {
  static const Environment environment{
      // Tests run as root in containers.
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
      // More ranks than cores start, give way to each other, and are not tied to a core.
      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
      {"OMPI_MCA_hwloc_base_binding_policy", "none"},
      {"OMPI_MCA_mpi_yield_when_idle", "1"},
      // The same for Open MPI 5, for MPICH, and for Intel MPI.
      {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
      {"PRTE_MCA_hwloc_default_binding_policy", "none"},
      {"MPIR_CVAR_POLLS_BEFORE_YIELD", "0"},
      {"I_MPI_PIN", "0"},
      {"I_MPI_THREAD_YIELD", "3"},
      // Shared memory only, without the kernel call that containers forbid.
      {"OMPI_MCA_pml", "ob1"},
      {"OMPI_MCA_btl", "self,vader"},
      {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
      {"OMP_NUM_THREADS", "1"},
      {"HWLOC_COMPONENTS", "-gl,-pci,-linux:pci"},
      {"HWLOC_PLUGINS_PATH", "/nonexistent"},
      // What MPI's plugins leak would drown ours.
      {"ASAN_OPTIONS", "detect_leaks=0"},
      {"XDG_CACHE_HOME", ""},
  };
  return environment;
}

std::chrono::duration<double> on_this_machine(std::chrono::duration<double> promised) {
  double in_last_minute = 0, in_last_minutes = 0, running_now = 0;
  std::ifstream{"/proc/loadavg"} >> in_last_minute >> in_last_minutes >> in_last_minutes >> running_now;
  cpu_set_t cores;
  const int count = ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return promised * std::max(1.0, std::max(in_last_minute, running_now) / count);
}

std::vector<std::string> processes_left(std::string_view marker, std::chrono::duration<double> grace, Which which) {
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(grace);
  const auto look = [&] {
    std::vector<pid_t> processes = processes_with(marker);
    if (which == Which::ranks) std::erase_if(processes, [](pid_t process) { return !is_rank(process); });
    return processes;
  };
  std::vector<pid_t> processes = look();
  while (!processes.empty() && Clock::now() < deadline) {
    std::this_thread::sleep_for(poll_interval);
    processes = look();
  }
  std::vector<std::string> descriptions;
  std::transform(processes.begin(), processes.end(), std::back_inserter(descriptions), describe);
  return descriptions;
}

void kill_processes(std::string_view marker) {
  for (const pid_t process : processes_with(marker)) kill(process, SIGKILL);
}

std::optional<int> rank_in(std::string_view variable) {
  for (const LauncherVariables& each : launcher_variables)
    if (const std::string name = std::string{each.rank_of_mpi} + "="; variable.starts_with(name))
      return std::atoi(variable.data() + name.size());
  return std::nullopt;
}

std::string last_line(std::string_view text) {
  text.remove_suffix(text.size() - (text.find_last_not_of('\n') + 1));
  const std::size_t previous_end = text.rfind('\n');
  return std::string{previous_end == std::string_view::npos ? text : text.substr(previous_end + 1)};
}

std::vector<std::string> lines_starting_with(std::string_view text, std::string_view prefix) {
  std::vector<std::string> lines = lines_of(text);
  std::erase_if(lines, [&](const std::string& line) { return !line.starts_with(prefix); });
  return lines;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX";
  if (!mkdtemp(name.data())) throw std::system_error{errno, std::generic_category(), name};
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // a leftover folder is no reason to fail
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryDirectory::write(const std::filesystem::path& name, std::string_view contents) const {
  const std::filesystem::path path = path_ / name;
  std::ofstream file{path, std::ios::binary};
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  if (!file.flush()) throw std::runtime_error{"cannot write " + path.string()};
  return path;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw std::runtime_error{"cannot read " + path.string()};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace lockstep::test
