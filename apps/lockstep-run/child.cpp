#include "apps/lockstep-run/child.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/process_tree.hpp"
#include "core/base/descriptor.hpp"
#include "core/base/system_error.hpp"

extern char** environ;

namespace lockstep::run {
namespace {

/// Children that were started here and not waited for. As the system knows them: those of the process.
std::vector<pid_t> started;

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::vector<std::string> variables_of(const ChildEnvironment& environment) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry)
    if (std::ranges::find(environment.without, name_of(*entry)) == environment.without.end()) all.emplace_back(*entry);
  for (const std::string& each : environment.with)
    if (std::ranges::find(all, name_of(each), name_of) == all.end()) all.push_back(each);
  return all;
}

/// The array of C strings that exec wants; `strings` must outlive it.
std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// What happens between fork and exec: only calls that a child may make there. Returns if one fails.
void become(char* const* command, char* const* environment, ChildStreams streams, pid_t parent) {
  // Ctrl-C in a terminal reaches a group. The job learns of it from us.
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return;
  if (::getppid() != parent) ::_exit(1);  // it ended before
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  // What is read cannot be read again by the next job.
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || ::dup2(in, STDIN_FILENO) < 0) return;
  // dup2 to itself keeps a descriptor that would close at exec, and would not say so.
  if (streams.out != STDOUT_FILENO && ::dup2(streams.out, STDOUT_FILENO) < 0) return;
  if (streams.err != STDERR_FILENO && ::dup2(streams.err, STDERR_FILENO) < 0) return;
  ::execvpe(command[0], command, environment);
}

}  // namespace

pid_t start_child(const std::vector<std::string>& command, const ChildEnvironment& environment, ChildStreams streams) {
  std::vector<std::string> words = command, variables = variables_of(environment);
  const std::vector<char*> arguments = pointers_to(words), its = pointers_to(variables);
  int failure[2];
  // It closes by itself at exec, and carries errno if there is none.
  if (::pipe2(failure, O_CLOEXEC) != 0) throw Error{fmt::format("pipe: {}", error_text(errno))};
  const Descriptor failed{failure[0]};
  Descriptor fails{failure[1]};
  const pid_t self = ::getpid();
  const pid_t id = ::fork();
  if (id < 0) throw Error{fmt::format("fork: {}", error_text(errno))};
  if (id == 0) {
    become(arguments.data(), its.data(), streams, self);
    const int error = errno;
    (void)!::write(fails.get(), &error, sizeof error);
    ::_exit(127);
  }
  fails = Descriptor{};
  int error = 0;
  if (::read(failed.get(), &error, sizeof error) > 0) {
    (void)::waitpid(id, nullptr, 0);
    throw Error{fmt::format("{} cannot be run: {}", command.front(), error_text(error))};
  }
  started.push_back(id);
  return id;
}

std::optional<int> take_end(pid_t child) {
  constexpr int failed = 1 << 8;  // if somebody else has waited for it
  int status = failed;
  const pid_t found = ::waitpid(child, &status, WNOHANG);
  if (found != child && !(found < 0 && errno == ECHILD)) return std::nullopt;
  std::erase(started, child);
  return status;
}

std::vector<pid_t> orphans() {
  std::vector<pid_t> found = children_of(::getpid());
  std::erase_if(found, [](pid_t each) { return std::ranges::find(started, each) != started.end(); });
  return found;
}

void leave_alone(pid_t child) {
  if (std::ranges::find(started, child) == started.end()) started.push_back(child);
}

void reap_orphans() {
  // Mostly there are none.
  siginfo_t ended = {};
  if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
  for (const pid_t each : orphans()) (void)::waitpid(each, nullptr, WNOHANG);
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace lockstep::run
