#include "runtime/launcher.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "cluster/launch.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

enum class Launcher { mpirun, daemon, unknown };

std::string name_of(pid_t process) {
  std::string name;
  std::getline(std::ifstream{fmt::format("/proc/{}/comm", process)}, name);
  return name;
}

Launcher launcher(pid_t process) {
  const std::string name = name_of(process);
  // Those of PRRTE's machine may serve other jobs too.
  if (launcher_of_name(name) != LauncherKind::open_mpi || name == "prte" || name == "prted") return Launcher::unknown;
  return name == "orted" ? Launcher::daemon : Launcher::mpirun;
}

volatile std::sig_atomic_t launcher_ends_job = 0;

/// Removes the shared memory of MPI that this process has mapped. It has names, which the end of MPI or mpirun would
/// remove.
void remove_segments() {
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path != std::string::npos && line.find("/vader_segment.", path) != std::string::npos)
      ::unlink(line.c_str() + path);
  }
}

/// Waits for so long, or until the launcher ends the job.
void wait_unless_ended(std::chrono::milliseconds time) {
  const auto start = std::chrono::steady_clock::now();
  while (!launcher_ends_job && std::chrono::steady_clock::now() - start < time) std::this_thread::sleep_for(10ms);
}

}  // namespace

bool is_started_by_daemon() {
  const std::string name = name_of(::getppid());
  return name == "orted" || name == "prted";
}

void end_this_side(Error::ExitCode code, Reach reach, int place) {
  const pid_t parent = ::getppid();
  const Launcher kind = launcher(parent);
  // The launcher passes SIGTERM on to us, and we are not done.
  std::signal(SIGTERM, [](int) { launcher_ends_job = 1; });
  // An mpirun that watches its connections (docs/reference.md says how to make it) notices by itself and ends this side
  // in order. A daemon that mpirun can no longer reach need not be waited for: it cleans up when told to.
  if (kind != Launcher::daemon || reach != Reach::cut_off) wait_unless_ended(2500ms);
  remove_segments();
  // One rank of the node is enough, unless it is the one in trouble.
  wait_unless_ended(place * 2s);
  // mpirun that has noticed is ending the job, and waits for its ranks. Told twice to do what it does already, it would
  // give up: leave its daemons behind, and crash at that (Open MPI 4.1 with PMIx 4.2).
  if (launcher_ends_job) std::_Exit(static_cast<int>(code));
  if (::getppid() == parent && kind != Launcher::unknown) ::kill(parent, SIGTERM);
  // At the first SIGTERM mpirun ends the job in order, if it can tell the other side; at the second it gives up. In
  // between, a second after telling us, it kills us.
  std::this_thread::sleep_for(900ms);
  if (::getppid() == parent && kind == Launcher::mpirun) ::kill(parent, SIGTERM);
  std::this_thread::sleep_for(2s);
  std::_Exit(static_cast<int>(code));
}

void end_without_launcher(Error::ExitCode code) {
  remove_segments();
  std::_Exit(static_cast<int>(code));
}

}  // namespace lockstep
