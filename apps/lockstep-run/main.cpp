// Starts a job again and again until it is done: spawns and watches, and leaves the decisions to Supervision.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "apps/lockstep-run/command_line.hpp"
#include "apps/lockstep-run/running_job.hpp"
#include "apps/lockstep-run/supervised_checkpoints.hpp"
#include "apps/lockstep-run/supervised_command.hpp"
#include "apps/lockstep-run/supervision.hpp"
#include "apps/options/standard_output.hpp"
#include "base/descriptor.hpp"
#include "base/host_name.hpp"
#include "checkpoint/folder_lock.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::run;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// A wish to stop that comes before there is a rank is lost, so it is repeated, later and later.
constexpr std::chrono::milliseconds first_repeat = 500ms;
// mpirun kills its ranks a second after it was told to end.
constexpr auto until_killed = 5s;
// A job that ends sooner, without a checkpoint, has achieved nothing.
constexpr auto worth_a_restart = 60s;

void say(const std::string& line) {
  const std::string text = "lockstep-run: " + line + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

/// The signals that a user or scheduler sends, and the end of a child, as a descriptor.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    descriptor_ = Descriptor{::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (descriptor_.get() < 0) throw Error{"signalfd failed"};
    ::signal(SIGPIPE, SIG_IGN);  // the job goes on where nobody reads what it says
  }

  int descriptor() const { return descriptor_.get(); }

  /// The next one that has come.
  std::optional<int> take() const {
    signalfd_siginfo info;
    if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  Descriptor descriptor_;
};

class Run {
 public:
  explicit Run(const CommandLine& line)
      : line_{line},
        command_{line.command},
        checkpoints_{command_.checkpoints()},
        supervision_{{.ranks = line.ranks,
                      .min_ranks = line.min_ranks,
                      .max_restarts = line.max_restarts,
                      .hosts = line.hosts,
                      .this_host = host_name(),
                      .fits = [this](int ranks) { return fits(ranks); }}} {}

  /// The exit code.
  int until_the_end() {
    if (!command_.is_training())
      say(fmt::format("{} is no lockstep-train: it is started again with the same words, and has to go on by itself",
                      line_.command.front()));
    Start start = supervision_.first();
    std::vector<std::string> words = command_.words();
    // A fault that is injected happens once.
    std::vector<std::string> without;
    while (true) {
      const JobEnd end = run_job(start, words, without);
      if (killed_by_) return 128 + *killed_by_;
      const Decision decision = supervision_.after(end);
      for (const std::string& each : decision.lines) say(each);
      if (!decision.start) return decision.exit_code;
      start = *decision.start;
      if (was_told_before(Clock::now() + start.delay)) {
        say("ends with exit code 75, as it was told to stop");
        return static_cast<int>(ExitCode::stopped);
      }
      words = command_.again(start.ranks, line_.ranks, checkpoints_.seen());
      without = {"LOCKSTEP_FAULT"};
    }
  }

 private:
  bool fits(int ranks) const {
    // It names a cluster, as --cluster-spec does.
    if (ranks != line_.ranks && std::getenv("TF_CONFIG")) return false;
    return command_.fits(ranks, line_.ranks, checkpoints_.seen());
  }

  std::vector<std::string> command_of(const Start& start, const std::vector<std::string>& words) const {
    std::vector<std::string> all = line_.mpirun;
    all.insert(all.end(), {"-n", std::to_string(start.ranks)});
    // mpirun gives ranks on other hosts no variables but those that it is told to.
    if (!start.hosts.empty()) all.insert(all.end(), {"--host", to_host_list(start.hosts), "-x", supervised_variable});
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }

  JobEnd run_job(const Start& start, const std::vector<std::string>& words, const std::vector<std::string>& without) {
    const std::string newest_before = checkpoints_.newest();
    const auto begin = Clock::now();
    RunningJob job{command_of(start, words), without};
    std::optional<int> code;
    while (!(code = job.poll())) {
      wait(job);
      job.relay();
      while (const auto signal = signals_.take())
        if (*signal != SIGCHLD) take(*signal, job);
      insist(job);
    }
    return {.exit_code = *code,
            .report = job.report(),
            .made_progress = checkpoints_.newest() != newest_before || Clock::now() - begin > worth_a_restart,
            .was_told_to_stop = told_to_stop_};
  }

  void wait(const RunningJob& job) const {
    std::array<pollfd, 2> waits{{{signals_.descriptor(), POLLIN, 0}, {job.stderr_descriptor(), POLLIN, 0}}};
    // A pipe whose writers are gone is always readable; the end of the job comes as a signal.
    if (::poll(&waits[1], 1, 0) > 0 && (waits[1].revents & POLLIN) == 0) waits[1].fd = -1;
    const std::chrono::milliseconds most = told_to_stop_ ? first_repeat : 10s;
    ::poll(waits.data(), waits.size(), static_cast<int>(most / 1ms));
  }

  void take(int signal, RunningJob& job) {
    const char* const name = ::sigabbrev_np(signal);
    if (!told_to_stop_) {
      told_to_stop_ = true;
      next_wish_ = Clock::now();
      say(fmt::format("SIG{}: the job is to stop after the step under way; SIGINT or SIGTERM now ends it at once",
                      name));
    } else if (signal != SIGUSR1 && !killed_by_) {
      killed_by_ = signal;
      kill_at_ = Clock::now() + until_killed;
      say(fmt::format("SIG{}: ends the job at once", name));
      job.signal(SIGTERM);
    }
  }

  /// Passes the wish on until it is understood, and ends a job that does not end.
  void insist(RunningJob& job) {
    const auto now = Clock::now();
    if (killed_by_ && now > kill_at_) return job.signal(SIGKILL);
    if (!told_to_stop_ || killed_by_ || now < next_wish_) return;
    if (job.report().cause == JobReport::Cause::asked) return;
    job.signal(SIGUSR1);
    next_wish_ = now + until_repeat_;
    until_repeat_ *= 2;
  }

  /// Whether a signal comes before this time.
  bool was_told_before(Clock::time_point time) const {
    while (true) {
      while (const auto signal = signals_.take())
        if (*signal != SIGCHLD) return true;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now());
      if (left <= 0ms) return false;
      pollfd wait{signals_.descriptor(), POLLIN, 0};
      ::poll(&wait, 1, static_cast<int>(left / 1ms));
    }
  }

  CommandLine line_;
  SupervisedCommand command_;
  SupervisedCheckpoints checkpoints_;
  Supervision supervision_;
  Signals signals_;
  bool told_to_stop_ = false;
  Clock::time_point next_wish_;
  std::chrono::milliseconds until_repeat_ = first_repeat;
  std::optional<int> killed_by_;
  Clock::time_point kill_at_;
};

}  // namespace

int main(int argc, char** argv) {
  keep_closed_streams_closed();
  try {
    const lockstep::run::CommandLine line = lockstep::run::parse_command_line(argc, argv);
    if (line.answer) {
      lockstep::write_output(*line.answer);
      return 0;
    }
    adopt_orphans();
    ::setenv(supervised_variable, "1", 1);
    return Run{line}.until_the_end();
  } catch (const std::exception& error) {
    say(fmt::format("error: {}", error.what()));
    return static_cast<int>(lockstep::exit_code_of(error));
  }
}
