#include "apps/lockstep-run/host_inquiry.hpp"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/lockstep-run/child.hpp"
#include "apps/lockstep-run/process_tree.hpp"
#include "apps/lockstep-run/supervision.hpp"
#include "base/descriptor.hpp"

namespace lockstep::run {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t at_the_same_time = 32;
constexpr int failed_somehow = 1;
constexpr int most_tries = 2;
// mpirun needs a moment to remove its folder of temporary files.
constexpr auto until_mpirun_is_killed = 2s;

}  // namespace

HostInquiry::HostInquiry(std::vector<std::string> mpirun, std::vector<std::string> hosts,
                         std::chrono::milliseconds patience)
    : mpirun_{std::move(mpirun)}, hosts_{std::move(hosts)}, patience_{patience} {}

HostInquiry::~HostInquiry() {
  for (Question& question : questions_) tell_to_end(question);
  for (const Question& question : questions_) end(question);
}

bool HostInquiry::poll() {
  while (asked_ < hosts_.size() && questions_.size() < at_the_same_time) ask(hosts_[asked_++]);
  std::erase_if(questions_, [&](const Question& each) { return take_answer(each); });
  std::vector<Question> late;
  const auto is_late = [](const Question& each) { return Clock::now() > each.until; };
  std::ranges::copy_if(questions_, std::back_inserter(late), is_late);
  std::erase_if(questions_, is_late);
  for (Question& question : late) {
    silent_.push_back(question.host);
    tell_to_end(question);
  }
  for (const Question& question : late) end(question);
  return questions_.empty() && asked_ == hosts_.size();
}

void HostInquiry::ask(const std::string& host) {
  std::vector<std::string> command = mpirun_;
  command.insert(command.end(), {"-n", "1", "--host", host, "true"});
  // What mpirun says of a host that fails, it says of the job as well.
  const Descriptor nowhere{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
  questions_.push_back({host, start_child(command, {}, {nowhere.get(), nowhere.get()}), Clock::now() + patience_});
}

bool HostInquiry::take_answer(const Question& question) {
  int status = 0;
  if (::waitpid(question.process, &status, WNOHANG) != question.process) return false;
  const int code = code_of(status);
  if (code >= first_of_mpirun) refused_.insert(question.host);
  if (code < first_of_mpirun && code != failed_somehow) return true;
  // Of several mpiruns that start at the same time, one may trip over the temporary files of another, and fail with
  // either code. A host that only gives 1 shows a mistake in the options, and the job makes it too.
  if (std::ranges::count(hosts_, question.host) < most_tries)
    hosts_.push_back(question.host);
  else if (refused_.contains(question.host))
    unreachable_.push_back(question.host);
  return true;
}

/// mpirun leaves the shell that it has started for the host, and which waits for ever.
void HostInquiry::tell_to_end(Question& question) {
  question.below = descendants_of(question.process);
  ::kill(question.process, SIGTERM);
}

void HostInquiry::end(const Question& question) {
  const auto deadline = Clock::now() + until_mpirun_is_killed;
  while (::waitpid(question.process, nullptr, WNOHANG) == 0) {
    if (Clock::now() > deadline) ::kill(question.process, SIGKILL);
    std::this_thread::sleep_for(5ms);
  }
  for (const pid_t each : question.below) {
    // What has lost its parent is a child of this process, and keeps its number until it is waited for.
    const std::vector<pid_t> orphans = children_of(::getpid());
    if (std::ranges::find(orphans, each) == orphans.end()) continue;
    ::kill(each, SIGKILL);
    (void)::waitpid(each, nullptr, 0);
  }
}

}  // namespace lockstep::run
