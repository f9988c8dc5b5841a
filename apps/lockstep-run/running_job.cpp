#include "apps/lockstep-run/running_job.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

extern char** environ;

namespace lockstep::run {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks that lose mpirun end by themselves.
constexpr std::chrono::seconds until_killed{3};

std::vector<std::string> environment_without(const std::vector<std::string>& names) {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    if (std::ranges::find(names, text.substr(0, text.find('='))) == names.end()) kept.emplace_back(text);
  }
  return kept;
}

/// The array of C strings that exec wants; `strings` must outlive it.
std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// What happens between fork and exec: only calls that a child may make there. Returns if one fails.
void become(char* const* command, char* const* environment, int err, pid_t parent) {
  // Ctrl-C in a terminal reaches a group. The job learns of it from us.
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return;
  if (::getppid() != parent) ::_exit(1);  // it ended before
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  // What is read cannot be read again by the next job.
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || ::dup2(in, STDIN_FILENO) < 0 || ::dup2(err, STDERR_FILENO) < 0) return;
  ::execvpe(command[0], command, environment);
}

void write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(STDERR_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads it
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::vector<pid_t> children() {
  std::ifstream list{fmt::format("/proc/self/task/{}/children", ::getpid())};
  return {std::istream_iterator<pid_t>{list}, {}};
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

RunningJob::RunningJob(const std::vector<std::string>& command, const std::vector<std::string>& without) {
  std::vector<std::string> words = command, variables = environment_without(without);
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  int err[2], failure[2];
  if (::pipe2(err, O_CLOEXEC) != 0) throw Error{fmt::format("pipe: {}", std::strerror(errno))};
  stderr_ = Descriptor{err[0]};
  const Descriptor theirs{err[1]};
  // It closes by itself at exec, and carries errno if there is none.
  if (::pipe2(failure, O_CLOEXEC) != 0) throw Error{fmt::format("pipe: {}", std::strerror(errno))};
  const Descriptor failed{failure[0]};
  Descriptor fails{failure[1]};
  const pid_t self = ::getpid();
  id_ = ::fork();
  if (id_ < 0) throw Error{fmt::format("fork: {}", std::strerror(errno))};
  if (id_ == 0) {
    become(arguments.data(), environment.data(), theirs.get(), self);
    const int error = errno;
    (void)!::write(fails.get(), &error, sizeof error);
    ::_exit(127);
  }
  fails = Descriptor{};
  int error = 0;
  if (::read(failed.get(), &error, sizeof error) > 0) {
    (void)::waitpid(id_, nullptr, 0);
    throw Error{fmt::format("{} cannot be run: {}", command.front(), std::strerror(error))};
  }
  ::fcntl(stderr_.get(), F_SETFL, O_NONBLOCK);
}

RunningJob::~RunningJob() {
  if (ended_) return;
  ::kill(id_, SIGKILL);
  (void)::waitpid(id_, nullptr, 0);
  end_what_is_left();
}

void RunningJob::relay() {
  std::array<char, 16384> bytes;
  for (ssize_t count; (count = ::read(stderr_.get(), bytes.data(), bytes.size())) > 0;) {
    const std::string_view text{bytes.data(), static_cast<std::size_t>(count)};
    write_all(text);
    reader_.take(text);
  }
}

void RunningJob::signal(int number) const {
  if (!ended_) ::kill(id_, number);
}

std::optional<int> RunningJob::poll() {
  int status = 0;
  if (ended_ || ::waitpid(id_, &status, WNOHANG) != id_) return std::nullopt;
  ended_ = true;
  end_what_is_left();
  relay();
  return code_of(status);
}

/// A rank that lives on would write checkpoints beside the next job's.
void RunningJob::end_what_is_left() {
  const auto deadline = Clock::now() + until_killed;
  while (true) {
    pid_t waited;
    while ((waited = ::waitpid(-1, nullptr, WNOHANG)) > 0) continue;
    if (waited < 0) return;  // there are none
    if (Clock::now() > deadline)
      for (const pid_t each : children()) ::kill(each, SIGKILL);
    relay();
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

}  // namespace lockstep::run
