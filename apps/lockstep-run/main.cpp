// Starts a job again and again until it is done: spawns and watches, and leaves the decisions to Supervision.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/command_line.hpp"
#include "apps/lockstep-run/host_inquiry.hpp"
#include "apps/lockstep-run/job_command.hpp"
#include "apps/lockstep-run/launcher_words.hpp"
#include "apps/lockstep-run/lost_host_watch.hpp"
#include "apps/lockstep-run/probe.hpp"
#include "apps/lockstep-run/run_timeline.hpp"
#include "apps/lockstep-run/running_job.hpp"
#include "apps/lockstep-run/say.hpp"
#include "apps/lockstep-run/signals.hpp"
#include "apps/lockstep-run/start_watch.hpp"
#include "apps/lockstep-run/strangers.hpp"
#include "apps/lockstep-run/supervised_checkpoints.hpp"
#include "apps/lockstep-run/supervised_command.hpp"
#include "apps/lockstep-run/supervision.hpp"
#include "apps/options/standard_output.hpp"
#include "core/base/awake_clock.hpp"
#include "core/base/exit_code.hpp"
#include "core/base/host_name.hpp"
#include "core/base/inherited_signals.hpp"
#include "core/base/memory_kills.hpp"
#include "core/base/stream.hpp"
#include "core/base/supervised_job.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::run;
using Clock = AwakeClock;
using namespace std::chrono_literals;

// A wish to stop that comes before there is a rank is lost, so it is repeated, later and later.
constexpr std::chrono::milliseconds first_repeat = 500ms;
// mpirun kills its ranks a second after it was told to end.
constexpr auto patience_with_mpirun = 5s;
// A job that has worked for less, without a checkpoint, has achieved nothing. One that stalls has not worked since.
constexpr auto worth_a_restart = 60s;
constexpr auto until_trainings_begin = 60s;

class Run {
 public:
  /// `passes_on` is the process that signals come from, if only one does.
  Run(const CommandLine& line, std::optional<pid_t> passes_on)
      : line_{line},
        command_{line.command},
        checkpoints_{command_.checkpoints()},
        timeline_{command_.run_folder()},
        supervision_{{.ranks = line.ranks,
                      .min_ranks = line.min_ranks.value_or(1),
                      .may_start_without = line.min_ranks.has_value(),
                      .max_restarts = line.max_restarts,
                      .skips_wrong_hosts = line.skips_wrong_hosts,
                      .hosts = line.hosts,
                      .this_host = host_name(),
                      .relative_time = [this](int ranks) { return relative_time(ranks); }}},
        signals_{passes_on} {
    if (line.placement && command_.fixes_ranks())
      throw ConfigError{"--cluster-spec was given to lockstep-run and to the command: expected it before -- only"};
  }

  /// An exit code, unless all hosts have what the job needs. Says what one lacks.
  std::optional<int> probe_hosts() const {
    bool told_to_stop = false;
    const auto wait = [&](std::chrono::milliseconds time) {
      told_to_stop = signals_.take_within(time).has_value();
      return !told_to_stop;
    };
    const std::vector<std::string> lines = probe({.mpirun = mpirun_of(line_),
                                                  .hosts = line_.hosts,
                                                  .program = command_.words().front(),
                                                  .has_version = command_.is_training(),
                                                  .paths = command_.needed_paths(),
                                                  .needs_gpus = command_.needs_gpus(),
                                                  .wait = wait});
    if (told_to_stop) {
      say("ends with exit code 75, as it was told to stop");
      return static_cast<int>(Error::ExitCode::stopped);
    }
    for (const std::string& each : lines) say("error: " + each);
    if (!lines.empty()) return static_cast<int>(Error::ExitCode::user_input);
    return std::nullopt;
  }

  /// What the first start would be, for a shell.
  std::string script() const {
    return JobCommand{line_, supervision_.first(), command_.words(), command_.threads()}.script();
  }

  /// The exit code.
  int until_the_end() {
    if (!command_.is_training())
      say(fmt::format("{} is no lockstep-train: it is started again with the same words, and has to go on by itself",
                      line_.command.front()));
    if (const std::string option = what_hides_stderr(line_.mpi, line_.mpirun); !option.empty()) say_unheard(option);
    Start start = supervision_.first();
    std::vector<std::string> words = command_.words();
    ChildEnvironment environment;
    while (true) {
      JobEnd end = run_job(start, words, environment);
      if (killed_by_) return 128 + *killed_by_;
      ask_about(end);
      const Decision decision = supervision_.after(end);
      for (const std::string& each : decision.lines) say(each);
      if (!decision.start) return decision.exit_code;
      start = *decision.start;
      if (signals_.take_within(start.delay)) {
        say("ends with exit code 75, as it was told to stop");
        return static_cast<int>(Error::ExitCode::stopped);
      }
      words = command_.again(start.ranks, line_.ranks, checkpoints_.seen());
      environment = of_restart();
    }
  }

 private:
  std::optional<double> relative_time(int ranks) const {
    if (line_.placement && ranks % line_.placement->ranks_of_task() != 0) return std::nullopt;
    // It names a cluster, as --cluster-spec does.
    if (!line_.placement && ranks != line_.ranks && std::getenv("TF_CONFIG")) return std::nullopt;
    return command_.relative_time(ranks, line_.ranks, checkpoints_.seen());
  }

  std::chrono::seconds start_timeout() const {
    return line_.start_timeout.value_or(command_.is_training() ? until_trainings_begin : 0s);
  }

  StartWatch watch_of(const Start& start) const {
    return StartWatch{{.timeout = start_timeout(),
                       .mpirun = mpirun_of(line_),
                       .hosts = elsewhere(start.hosts, host_name()),
                       .ends_for_no_host = command_.is_training() && !start.hosts.empty()}};
  }

  static ChildEnvironment of_restart() {
    // A fault that is injected happens once. If a step has lost a node, Slurm may never see that it has ended. With
    // this variable, the next step does not wait for that.
    return {.without = {"LOCKSTEP_FAULT", "SLURM_OVERLAP"}, .with = {"SLURM_OVERLAP=1"}};
  }

  /// Whether ranks may run on this host while others do not answer. A training says when its ranks have met.
  bool may_lack_hosts(const Start& start) const {
    return !starts_hosts_together(line_.mpi, line_.mpirun) && command_.is_training() &&
           !elsewhere(start.hosts, host_name()).empty();
  }

  JobEnd run_job(const Start& start, const std::vector<std::string>& words, const ChildEnvironment& environment) {
    const std::string newest_before = checkpoints_.newest_made();
    timeline_.begin();
    MemoryKills memory_kills;
    memory_kills.watch(::getpid());
    JobCommand command{line_, start, words, command_.threads()};
    RunningJob job{command.words(), environment, labels_of(line_.mpirun)};
    StartWatch watch = watch_of(start);
    kill_at_.reset();
    is_not_begun_ = has_lost_host_ = false;
    LostHostWatch lost_host_watch;
    auto begun = Begun::nowhere;
    Clock::time_point begin;
    std::optional<int> code;
    while (!(code = job.poll())) {
      wait(job, watch.is_asking());
      job.relay();
      while (const auto signal = signals_.take())
        if (*signal != SIGCHLD) take(*signal, job);
      pass_question(job);
      if (begun == Begun::nowhere && (job.has_begun() || checkpoints_.newest_made() != newest_before)) {
        begun = Begun::here;
        begin = Clock::now();
      }
      if (begun == Begun::here && (job.report().has_begun || !may_lack_hosts(start))) begun = Begun::everywhere;
      if (!killed_by_) look(watch, begun, start, job);
      if (begun == Begun::nowhere) end_unbegun(job);
      if (!kill_at_ && lost_host_watch.look(job.report(), Clock::now())) {
        has_lost_host_ = true;
        end(job);
      }
      insist(job);
      memory_kills.look();
    }
    watch.stop();
    job.end_what_is_left();
    // srun already reports 128 + the signal.
    const int exit_code = names_srun(line_.mpirun) ? *code : code_of_job(line_.mpi, *code, job.report());
    const bool has_begun = begun != Begun::nowhere && !is_not_begun_;
    JobEnd end{.exit_code = exit_code, .report = job.report(), .has_begun = has_begun || job.report().has_begun};
    const bool made_checkpoint = checkpoints_.newest_made() != newest_before;
    end.made_progress =
        made_checkpoint || (has_begun && Clock::now() - begin > worth_a_restart + command_.stall_timeout());
    end.was_told_to_stop = told_to_stop_;
    end.mpirun_was_killed = job.was_killed() && !is_not_begun_ && !has_lost_host_;
    if (exit_code == 128 + SIGKILL) end.memory = memory_kills.told_of(::getpid());
    if (is_not_begun_ || has_lost_host_) end.exit_code = static_cast<int>(Error::ExitCode::stall);
    if (is_not_begun_) {
      end.waited_for_start = watch.waited();
      add_unreachable(end, watch.silent(), watch.unreachable());
    }
    if (command_.is_training() && made_checkpoint && exit_code != 0 && !job.report().has_begun &&
        !job.report().has_spoken)
      say_unheard("a parameter file, or the launcher");
    note(end);
    return end;
  }

  /// Whatever it is that keeps them from being heard, once.
  void say_unheard(const std::string& because) {
    if (std::exchange(unheard_, true)) return;
    say(
        fmt::format("{}: what the ranks write to stderr does not reach lockstep-run, so restarts depend on mpirun's "
                    "exit code alone",
                    because));
  }

  /// A failure that no rank may have written down.
  void note(const JobEnd& end) const {
    const Judgement judgement = judge(end.exit_code, end.report);
    if (end.exit_code == 0 || judgement.remedy == Remedy::stop) return;
    timeline_.end(end.report.line.empty() ? "lockstep-run: " + judgement.reason : end.report.line, end.exit_code);
  }

  static void add_unreachable(JobEnd& end, const std::vector<std::string>& silent,
                              const std::vector<std::string>& unreachable) {
    end.silent = silent;
    std::vector<std::string>& all = end.report.unreachable;
    for (const auto* hosts : {&silent, &unreachable})
      for (const std::string& host : *hosts)
        if (std::ranges::find(all, host) == all.end()) all.push_back(host);
  }

  /// Asks hosts that may be the reason.
  void ask_about(JobEnd& end) {
    const std::vector<std::string> hosts = supervision_.in_doubt(end);
    if (hosts.empty()) return;
    HostInquiry inquiry{mpirun_of(line_), hosts};
    while (!inquiry.poll()) {
      if (!signals_.take_within(50ms)) continue;
      told_to_stop_ = end.was_told_to_stop = true;
      return;
    }
    add_unreachable(end, inquiry.silent(), inquiry.unreachable());
  }

  void wait(const RunningJob& job, bool is_asking) const {
    std::array<pollfd, 2> waits{{{signals_.descriptor(), POLLIN, 0}, {job.stderr_descriptor(), POLLIN, 0}}};
    // A pipe whose writers are gone is always readable; the end of the job comes as a signal.
    if (::poll(&waits[1], 1, 0) > 0 && (waits[1].revents & POLLIN) == 0) waits[1].fd = -1;
    std::chrono::milliseconds most = 1s;  // the clock wants to be looked at
    if (told_to_stop_ || kill_at_) most = first_repeat;
    if (is_asking) most = 50ms;
    ::poll(waits.data(), waits.size(), static_cast<int>(most / 1ms));
  }

  void take(int signal, RunningJob& job) {
    const char* const name = ::sigabbrev_np(signal);
    if (signal == SIGUSR2) {
      is_asked_ = true;
      if (!job.report().has_begun) say("SIGUSR2: the ranks say where they are once they have met");
    } else if (!told_to_stop_) {
      told_to_stop_ = true;
      next_wish_ = told_at_ = Clock::now();
      say(fmt::format("SIG{}: the job is to stop after the step under way; SIGINT or SIGTERM now ends it at once",
                      name));
    } else if (signal != SIGUSR1 && !killed_by_) {
      killed_by_ = signal;
      say(fmt::format("SIG{}: ends the job at once", name));
      end(job);
    }
  }

  /// Before the ranks have met, the signal might end one.
  void pass_question(const RunningJob& job) {
    if (!is_asked_ || !job.report().has_begun) return;
    is_asked_ = false;
    // Any rank knows the others. Launchers also pass it to what a rank has started, and it would end MPICH's.
    if (job.signal_ranks(SIGUSR2)) return;
    if (!has_hydra(line_.mpi) || names_srun(line_.mpirun)) return job.signal(SIGUSR2);
    say("SIGUSR2: no rank runs on this host: send it to one on another");
  }

  void look(StartWatch& watch, Begun begun, const Start& start, RunningJob& job) {
    switch (watch.look(begun)) {
      case StartWatch::Finding::nothing: break;
      case StartWatch::Finding::all_answer:
        say(fmt::format("the job has not begun after {} s{}: waits on", watch.waited().count(),
                        elsewhere(start.hosts, host_name()).empty() ? "" : ", though all hosts answer"));
        break;
      case StartWatch::Finding::not_begun:
        is_not_begun_ = true;
        end(job);
        break;
    }
  }

  /// A launcher that starts no rank may pass no wish on either. There is nothing yet to be saved.
  void end_unbegun(RunningJob& job) {
    const auto timeout = start_timeout();
    if (!told_to_stop_ || kill_at_ || timeout == 0s || Clock::now() - told_at_ < timeout) return;
    killed_by_ = SIGTERM;
    say(fmt::format("the job has not begun {} s after it was told to stop: ends it", timeout / 1s));
    end(job);
  }

  void end(RunningJob& job) {
    kill_at_ = Clock::now() + patience_with_mpirun;
    job.signal(SIGTERM);
  }

  /// Passes the wish on until it is understood, and ends a job that does not end.
  void insist(RunningJob& job) {
    const auto now = Clock::now();
    if (kill_at_ && now > *kill_at_) return job.signal(SIGKILL);
    if (!told_to_stop_ || kill_at_ || now < next_wish_) return;
    if (job.report().cause == JobReport::Cause::asked) return;
    job.signal(SIGUSR1);
    next_wish_ = now + until_repeat_;
    until_repeat_ *= 2;
  }

  CommandLine line_;
  SupervisedCommand command_;
  SupervisedCheckpoints checkpoints_;
  RunTimeline timeline_;
  Supervision supervision_;
  Signals signals_;
  bool told_to_stop_ = false;
  Clock::time_point told_at_, next_wish_;
  std::chrono::milliseconds until_repeat_ = first_repeat;
  std::optional<int> killed_by_;
  std::optional<Clock::time_point> kill_at_;
  bool is_not_begun_ = false;   ///< the job under way, which is ended for that
  bool has_lost_host_ = false;  ///< likewise
  bool unheard_ = false;        ///< said that the ranks are
  bool is_asked_ = false;       ///< the ranks are still to be asked where they are
};

}  // namespace

int main(int argc, char** argv) {
  lockstep::keep_closed_streams_closed();
  lockstep::settle_inherited_signals();
  try {
    const lockstep::run::CommandLine line = lockstep::run::parse_command_line(
        argc, argv, [](const char* name) { return static_cast<const char*>(std::getenv(name)); });
    if (line.answer) {
      lockstep::write_output(*line.answer);
      return 0;
    }
    const auto passes_on = part_from_strangers();
    ::setenv(supervised_variable, "1", 1);
    Run run{line, passes_on};
    if (!line.allocation.empty()) say(line.allocation);
    if (line.dry_run) {
      lockstep::write_output(run.script());
      return 0;
    }
    if (line.probe)
      if (const auto code = run.probe_hosts()) return *code;
    return run.until_the_end();
  } catch (const std::exception& error) {
    say(fmt::format("error: {}", error.what()));
    return static_cast<int>(lockstep::exit_code_of(error));
  }
}
