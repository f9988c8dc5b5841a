#include "apps/lockstep-run/host_inquiry.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/child.hpp"
#include "apps/lockstep-run/launcher_words.hpp"
#include "apps/lockstep-run/process_tree.hpp"
#include "apps/lockstep-run/say.hpp"
#include "apps/lockstep-run/supervision.hpp"
#include "core/base/file_io.hpp"
#include "core/base/host_name.hpp"
#include "core/base/system_error.hpp"

namespace lockstep::run {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t at_the_same_time = 32;
constexpr int failed_somehow = 1;
constexpr int most_tries = 3;
// mpirun needs a moment to remove its folder of temporary files.
constexpr auto until_mpirun_is_killed = 2s;
// SIGKILL does not end what waits for a disk, nor what another user has, such as sudo's.
constexpr auto until_left_alone = 2s;

/// Of a file in memory.
std::string text_in(const Descriptor& file) {
  std::string text;
  std::array<char, 4096> part;
  // Its writer has the same offset.
  for (std::size_t count = part.size(); count == part.size(); text.append(part.data(), count))
    count = read_at(file, text.size(), std::as_writable_bytes(std::span{part}), "what mpirun said");
  return text;
}

/// This host, as Slurm calls it.
std::string this_node() {
  if (const char* const name = std::getenv("SLURMD_NODENAME"); name && *name) return name;
  const std::string host = host_name();
  return host.substr(0, host.find('.'));
}

/// Waits until none is left of `processes`, at most for `patience`.
void wait_until_ended(std::vector<pid_t>& processes, std::chrono::milliseconds patience) {
  const auto deadline = AwakeClock::now() + patience;
  while (std::erase_if(processes, [](pid_t each) { return take_end(each).has_value(); }), !processes.empty()) {
    if (AwakeClock::now() > deadline) return;
    std::this_thread::sleep_for(5ms);
  }
}

/// The job does not wait for an inquiry, nor at its end for what is left of one.
void end_or_leave(std::vector<pid_t> processes, std::chrono::milliseconds patience) {
  for (const pid_t each : processes) ::kill(each, SIGKILL);
  wait_until_ended(processes, std::min<std::chrono::milliseconds>(patience, until_left_alone));
  for (const pid_t each : processes) leave_alone(each);
}

}  // namespace

HostInquiry::HostInquiry(std::vector<std::string> mpirun, std::vector<std::string> hosts,
                         std::chrono::milliseconds patience, Program program)
    : mpirun_{std::move(mpirun)}, hosts_{std::move(hosts)}, patience_{patience}, program_{std::move(program)} {}

HostInquiry::~HostInquiry() {
  end(questions_);
}

bool HostInquiry::poll() {
  while (asked_ < hosts_.size() && questions_.size() < at_the_same_time) ask(hosts_[asked_++]);
  std::erase_if(questions_, [&](const Question& each) { return take_answer(each); });
  const auto late = std::ranges::stable_partition(
      questions_, [now = Clock::now()](const Question& each) { return now <= each.until; });
  for (const Question& question : late)
    if (!is_control_asked_) silent_.push_back(question.host);
  end(std::span{late.begin(), late.end()});
  questions_.erase(late.begin(), late.end());
  if (!questions_.empty() || asked_ < hosts_.size()) return false;
  return doubtful_.empty() || settle_doubts();
}

/// Where one host answers, the options are right.
bool HostInquiry::settle_doubts() {
  if (answers_.empty() && !is_control_asked_) {
    is_control_asked_ = true;
    ask(names_srun(mpirun_) ? this_node() : "localhost");
    return false;
  }
  if (!answers_.empty()) std::ranges::move(doubtful_, std::back_inserter(unreachable_));
  doubtful_.clear();
  return true;
}

void HostInquiry::ask(const std::string& host) {
  std::vector<std::string> command = mpirun_;
  command.insert(command.end(), {"-n", "1", names_srun(mpirun_) ? "--nodelist" : "--host", host});
  std::ranges::copy(is_control_asked_ ? std::vector<std::string>{"true"} : program_(host), std::back_inserter(command));
  // What mpirun says of a host that fails, it says of the job as well.
  const Descriptor nowhere{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
  try {
    Descriptor out{::memfd_create("answer", MFD_CLOEXEC)};
    if (out.get() < 0) throw Error{fmt::format("memfd_create: {}", error_text(errno))};
    // A job holds the hosts: without this variable, such a step of Slurm would wait for the job to end.
    const pid_t process = start_child(command, {.with = {"SLURM_OVERLAP=1"}}, {out.get(), nowhere.get()});
    questions_.push_back({host, process, Clock::now() + patience_, std::move(out)});
  } catch (const Error& error) {
    // This host lacks processes or files. The job goes on without.
    say(fmt::format("host {} is not asked whether it answers: {}", host, error.what()));
  }
}

bool HostInquiry::take_answer(const Question& question) {
  const std::optional<int> status = take_end(question.process);
  if (!status) return false;
  const int code = code_of(*status);
  if (code >= first_of_mpirun) refused_.insert(question.host);
  if (code < first_of_mpirun && code != failed_somehow) {
    try {
      answers_[question.host] = text_in(question.stdout_);
    } catch (const Error& error) {
      // It has answered. The job goes on without the words.
      answers_[question.host];
      say(fmt::format("the answer of host {} is lost: {}", question.host, error.what()));
    }
    return true;
  }
  if (is_control_asked_) return true;
  // Of several mpiruns that start at the same time, one may trip over the temporary files of another, and fail with
  // either code. If hosts only give 1, there may be a mistake in the options, which the job makes too. But in a job of
  // Slurm, mpirun gives 1 for a host where it cannot start its daemon.
  if (std::ranges::count(hosts_, question.host) < most_tries)
    hosts_.push_back(question.host);
  else
    (refused_.contains(question.host) ? unreachable_ : doubtful_).push_back(question.host);
  return true;
}

void HostInquiry::end(std::span<const Question> questions) {
  // mpirun leaves the shell that it has started for the host, and which waits for ever.
  std::vector<pid_t> left, below;
  for (const Question& question : questions) {
    const std::vector<pid_t> its = descendants_of(question.process);
    below.insert(below.end(), its.begin(), its.end());
    left.push_back(question.process);
    ::kill(question.process, SIGTERM);
  }
  wait_until_ended(left, std::min<std::chrono::milliseconds>(patience_, until_mpirun_is_killed));
  end_or_leave(std::move(left), patience_);
  // What has lost its parent is a child of this process, and keeps its number until it is waited for.
  while (true) {
    std::vector<pid_t> lost = orphans();
    std::erase_if(lost, [&](pid_t each) { return std::ranges::find(below, each) == below.end(); });
    if (lost.empty()) return;
    end_or_leave(std::move(lost), patience_);
  }
}

}  // namespace lockstep::run
