#include "apps/lockstep-run/strangers.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/child.hpp"
#include "apps/lockstep-run/running_job.hpp"
#include "apps/lockstep-run/signals.hpp"
#include "core/base/system_error.hpp"

namespace lockstep::run {
namespace {

/// Before this process has started any itself.
bool may_have_strangers() {
  int is_given_orphans = 0;
  if (::getpid() == 1 || (::prctl(PR_GET_CHILD_SUBREAPER, &is_given_orphans) == 0 && is_given_orphans != 0))
    return true;
  siginfo_t none;
  return ::waitid(P_ALL, 0, &none, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

/// The exit code of `child`.
int stand_by(pid_t child, const Signals& signals) {
  while (true) {
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG | __WALL)) > 0;)
      if (ended == child) return code_of(status);
    pollfd wait{signals.descriptor(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    while (const auto signal = signals.take())
      if (*signal != SIGCHLD) pass_on(*signal, child);
  }
}

}  // namespace

std::optional<pid_t> part_from_strangers() {
  if (!may_have_strangers()) {
    adopt_orphans();
    return std::nullopt;
  }
  const Signals signals;  // none is lost in between
  const pid_t self = ::getpid(), child = ::fork();
  if (child < 0) throw Error{fmt::format("fork: {}", error_text(errno))};
  if (child > 0) std::_Exit(stand_by(child, signals));
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != self) std::_Exit(1);  // it ended before
  adopt_orphans();
  return self;
}

}  // namespace lockstep::run
