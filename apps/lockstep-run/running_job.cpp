#include "apps/lockstep-run/running_job.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "apps/lockstep-run/child.hpp"
#include "apps/lockstep-run/process_tree.hpp"
#include "base/stream.hpp"
#include "base/supervised_job.hpp"

namespace lockstep::run {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks that lose mpirun end by themselves.
constexpr std::chrono::seconds patience_with_ranks{3};

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

RunningJob::RunningJob(const std::vector<std::string>& command, const ChildEnvironment& environment)
    : not_ours_{children_of(::getpid())}, begun_{begun_line} {
  int err[2];
  if (::pipe2(err, O_CLOEXEC) != 0) throw Error{fmt::format("pipe: {}", std::strerror(errno))};
  stderr_ = Descriptor{err[0]};
  const Descriptor theirs{err[1]};
  id_ = start_child(command, environment, {.out = STDOUT_FILENO, .err = theirs.get()});
  ::fcntl(stderr_.get(), F_SETFL, O_NONBLOCK);
}

RunningJob::~RunningJob() {
  if (!ended_) {
    ::kill(id_, SIGKILL);
    (void)::waitpid(id_, nullptr, 0);
  }
  end_what_is_left();
}

void RunningJob::relay() {
  std::array<char, 16384> bytes;
  for (ssize_t count; (count = ::read(stderr_.get(), bytes.data(), bytes.size())) > 0;) {
    const std::string_view text{bytes.data(), static_cast<std::size_t>(count)};
    write_to_stderr(begun_.pass(text));
    const bool had_begun = report().has_begun;
    reader_.take(text);
    // By now all ranks have made what they share.
    if (!had_begun && report().has_begun) segments_.learn(descendants_of(id_));
  }
}

void RunningJob::signal(int number) const {
  if (!ended_) ::kill(id_, number);
}

bool RunningJob::signal_ranks(int number) const {
  bool is_sent = false;
  if (ended_) return is_sent;
  for (const pid_t process : descendants_of(id_))
    if (is_rank(process) && handles(process, number) && ::kill(process, number) == 0) is_sent = true;
  return is_sent;
}

bool RunningJob::has_begun() {
  if (has_begun_ || ended_) return has_begun_;
  const std::vector<pid_t> processes = descendants_of(id_);
  segments_.learn(processes);
  has_begun_ = report().has_begun || std::ranges::any_of(processes, is_rank);
  return has_begun_;
}

std::optional<int> RunningJob::poll() {
  int status = 0;
  if (ended_ || ::waitpid(id_, &status, WNOHANG) != id_) return std::nullopt;
  ended_ = true;
  was_killed_ = WIFSIGNALED(status);
  // Ranks that mpirun leaves behind are children of this process by now.
  segments_.learn(descendants_of(::getpid()));
  return code_of(status);
}

/// A rank that lives on would write checkpoints beside the next job's.
void RunningJob::end_what_is_left() {
  if (nothing_is_left_) return;
  nothing_is_left_ = true;
  const auto deadline = Clock::now() + patience_with_ranks;
  while (true) {
    // What has ended counts once more: its own children are this process's by now.
    std::vector<pid_t> left = children_of(::getpid());
    std::erase_if(left, [&](pid_t each) { return std::ranges::find(not_ours_, each) != not_ours_.end(); });
    if (left.empty()) break;
    for (const pid_t each : left)
      if (::waitpid(each, nullptr, WNOHANG) == 0 && Clock::now() > deadline) ::kill(each, SIGKILL);
    relay();
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  relay();
  write_to_stderr(begun_.rest());
  segments_.remove(id_);
}

}  // namespace lockstep::run
