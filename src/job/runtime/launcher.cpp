#include "job/runtime/launcher.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/descriptor.hpp"
#include "core/cluster/launch.hpp"
#include "job/runtime/siblings.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

std::string name_of_process(pid_t process) {
  std::string name;
  std::getline(std::ifstream{fmt::format("/proc/{}/comm", process)}, name);
  return name;
}

LauncherPart part_of(const std::string& launcher) {
  return part_of_launcher(launcher, [](const char* variable) { return std::getenv(variable); });
}

volatile std::sig_atomic_t launcher_ends_job = 0;

/// Removes files that this process has mapped, whose names begin so.
void remove_mapped(std::string_view beginning) {
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path == std::string::npos) continue;
    if (std::string_view{line}.substr(line.rfind('/') + 1).starts_with(beginning)) ::unlink(line.c_str() + path);
  }
}

/// Removes the shared memory of Open MPI 4 or 5, which has names that the end of MPI or mpirun would remove.
void remove_segments() {
  try {
    for (const char* each : {"vader_segment.", "sm_segment."}) remove_mapped(each);
  } catch (const std::exception&) {  // no memory to find them
  }
}

/// Waits for so long, in which this process runs, or until the launcher ends the job.
void wait_unless_ended(std::chrono::milliseconds time) {
  constexpr auto look = 10ms;
  for (auto waited = 0ms; !launcher_ends_job && waited < time; waited += look) std::this_thread::sleep_for(look);
}

void close_all_but(int descriptor) {
  const auto kept = static_cast<unsigned>(descriptor);
  if (kept > 3) (void)::syscall(SYS_close_range, 3U, kept - 1, 0);
  if (::syscall(SYS_close_range, kept + 1, ~0U, 0) == 0) return;
  // Kernels before 5.9 have no such call.
  constexpr long most = 1 << 16;
  for (int each = 3; each < std::min(most, ::sysconf(_SC_OPEN_MAX)); ++each)
    if (each != descriptor) ::close(each);
}

/// Open MPI 5's launcher gives up at the third SIGTERM, and may kill this process after the first. This has another
/// process send the second and the third, one and two seconds from now. False if it cannot.
bool kill_later(pid_t launcher) {
  // By then its number may be another process's.
  const Descriptor process{static_cast<int>(::syscall(SYS_pidfd_open, launcher, 0))};
  if (process.get() < 0 || ::getppid() != launcher) return false;
  if (const pid_t child = ::fork(); child != 0) return child > 0;
  // Other threads may have held any lock, so only what a signal handler may call.
  ::setsid();
  // This process's locks, sockets and GPUs are the next job's.
  close_all_but(process.get());
  for (int times = 0; times < 2; ++times) {
    timespec left{.tv_sec = 1, .tv_nsec = 0};
    while (::nanosleep(&left, &left) != 0) {
    }
    (void)::syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0U);
  }
  ::_exit(0);
}

}  // namespace

bool is_started_by_daemon() {
  return part_of(name_of_process(::getppid())) == LauncherPart::node;
}

void end_this_side(Error::ExitCode code, Reach reach, int place) {
  const pid_t parent = ::getppid();
  std::string launcher;
  LauncherPart part = LauncherPart::other;
  try {
    launcher = name_of_process(parent);
    part = part_of(launcher);
  } catch (const std::exception&) {  // no memory to ask: it is left alone
  }
  // The launcher passes SIGTERM on to us, and we are not done.
  std::signal(SIGTERM, [](int) { launcher_ends_job = 1; });
  // An mpirun that watches its connections (docs/reference.md says how to make it) notices by itself and ends this side
  // in order. A daemon that mpirun can no longer reach need not be waited for: it cleans up when told to.
  if (part != LauncherPart::node || reach != Reach::cut_off) wait_unless_ended(2500ms);
  remove_segments();
  // One rank of the node is enough, unless it is the one in trouble.
  wait_unless_ended(place * 2s);
  // mpirun that has noticed is ending the job, and waits for its ranks. Told twice to do what it does already, it would
  // give up: leave its daemons behind, and crash at that (Open MPI 4.1 with PMIx 4.2).
  if (launcher_ends_job) std::_Exit(static_cast<int>(code));
  const bool is_killed_later = launcher == "prterun" && kill_later(parent);
  if (::getppid() == parent && part != LauncherPart::other) ::kill(parent, SIGTERM);
  // At the first SIGTERM mpirun ends the job in order, if it can, and kills us a second after telling us; at the
  // second it gives up.
  std::this_thread::sleep_for(900ms);
  if (::getppid() == parent && part == LauncherPart::job && !is_killed_later) ::kill(parent, SIGTERM);
  std::this_thread::sleep_for(2s);
  std::_Exit(static_cast<int>(code));
}

void let_launcher_read() {
  if (nearest_launcher() == LauncherKind::pmi) std::this_thread::sleep_for(200ms);
}

void remove_names_of_mpich() {
  remove_mapped("mpich_shm_");
}

void end_without_launcher(Error::ExitCode code) {
  remove_segments();
  std::_Exit(static_cast<int>(code));
}

}  // namespace lockstep
