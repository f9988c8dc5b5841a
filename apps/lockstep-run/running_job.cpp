#include "apps/lockstep-run/running_job.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <set>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/child.hpp"
#include "apps/lockstep-run/process_tree.hpp"
#include "core/base/awake_clock.hpp"
#include "core/base/stream.hpp"
#include "core/base/supervised_job.hpp"
#include "core/base/system_error.hpp"

namespace lockstep::run {
namespace {

using Clock = AwakeClock;

constexpr std::chrono::milliseconds between_looks{5};

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

RunningJob::RunningJob(const std::vector<std::string>& command, const ChildEnvironment& environment,
                       const RankLabels& labels)
    : reader_{labels}, begun_{begun_line, labels} {
  int err[2];
  if (::pipe2(err, O_CLOEXEC) != 0) throw Error{fmt::format("pipe: {}", error_text(errno))};
  stderr_ = Descriptor{err[0]};
  const Descriptor theirs{err[1]};
  id_ = start_child(command, environment, {.out = STDOUT_FILENO, .err = theirs.get()});
  ::fcntl(stderr_.get(), F_SETFL, O_NONBLOCK);
}

RunningJob::~RunningJob() {
  if (!ended_) {
    ::kill(id_, SIGKILL);
    while (!take_end(id_)) std::this_thread::sleep_for(between_looks);
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
    if (signal_if(process, number, [=] { return is_rank(process) && handles(process, number); })) is_sent = true;
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
  if (ended_) return std::nullopt;
  reap_orphans();
  const std::optional<int> status = take_end(id_);
  if (!status) return std::nullopt;
  ended_ = true;
  was_killed_ = WIFSIGNALED(*status);
  // Ranks that mpirun leaves behind are children of this process by now.
  segments_.learn(descendants_of(::getpid()));
  return code_of(*status);
}

/// A rank that lives on would write checkpoints beside the next job's.
void RunningJob::end_what_is_left(std::chrono::milliseconds patience) {
  if (nothing_is_left_) return;
  nothing_is_left_ = true;
  const auto deadline = Clock::now() + patience;
  std::set<pid_t> beyond_reach;  // another user's, as of a program that changes its user
  while (true) {
    // What has ended counts once more: its own children are this process's by now.
    std::vector<pid_t> left = orphans();
    std::erase_if(left, [&](pid_t each) { return beyond_reach.contains(each); });
    if (left.empty()) break;
    for (const pid_t each : left) {
      if (::waitpid(each, nullptr, WNOHANG) != 0 || Clock::now() <= deadline) continue;
      if (::kill(each, SIGKILL) != 0 && errno == EPERM) beyond_reach.insert(each);
    }
    relay();
    std::this_thread::sleep_for(between_looks);
  }
  relay();
  write_to_stderr(begun_.rest());
  segments_.remove(id_);
}

}  // namespace lockstep::run
