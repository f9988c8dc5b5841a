#include "runtime/launcher.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

enum class Launcher { mpirun, daemon, unknown };

Launcher launcher(pid_t process) {
  std::string name;
  std::getline(std::ifstream{fmt::format("/proc/{}/comm", process)}, name);
  if (name == "mpirun" || name == "mpiexec" || name == "orterun") return Launcher::mpirun;
  if (name == "orted") return Launcher::daemon;
  return Launcher::unknown;
}

/// The shared memory of MPI that this process has mapped. It has names, which MPI's end would take away, or mpirun.
void remove_segments() {
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path != std::string::npos && line.find("/vader_segment.", path) != std::string::npos)
      ::unlink(line.c_str() + path);
  }
}

}  // namespace

void end_this_side(ExitCode code, Reach reach, int place) {
  const pid_t parent = ::getppid();
  const Launcher kind = launcher(parent);
  // It passes SIGTERM on to us, and we are not done.
  std::signal(SIGTERM, SIG_IGN);
  // mpirun that looks after its connections (README.md says how to make it) finds out by itself, and then it ends this
  // side in order. A daemon that mpirun cannot reach any more need not be waited for: it cleans up when it is told to.
  if (kind != Launcher::daemon || reach != Reach::cut_off) std::this_thread::sleep_for(2500ms);
  remove_segments();
  // One rank of the node is enough, unless that one is the trouble.
  std::this_thread::sleep_for(place * 2s);
  if (::getppid() == parent && kind != Launcher::unknown) ::kill(parent, SIGTERM);
  // At the first, mpirun ends the job in order, if it can tell the other side; at the second it gives up. It kills us
  // in between, a second after it told us.
  std::this_thread::sleep_for(900ms);
  if (::getppid() == parent && kind == Launcher::mpirun) ::kill(parent, SIGTERM);
  std::this_thread::sleep_for(2s);
  std::_Exit(static_cast<int>(code));
}

void end_without_launcher(ExitCode code) {
  remove_segments();
  std::_Exit(static_cast<int>(code));
}

}  // namespace lockstep
