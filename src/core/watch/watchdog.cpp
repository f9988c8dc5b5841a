#include "core/watch/watchdog.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/descriptor.hpp"
#include "core/base/log_settings.hpp"
#include "core/base/memory_kills.hpp"
#include "core/base/open_line.hpp"
#include "core/base/progress_count.hpp"
#include "core/base/start_thread.hpp"
#include "core/base/system_error.hpp"
#include "core/control/job_time.hpp"
#include "core/device/device_call.hpp"
#include "core/watch/caught_signals.hpp"
#include "core/watch/report_claim.hpp"
#include "core/watch/watch_rounds.hpp"
#include "core/watch/whereabouts.hpp"

namespace lockstep {
namespace {

/// Whether a line does not block: whoever reads it may have stopped.
bool stderr_takes_a_line() {
  pollfd wait{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&wait, 1, 0) > 0;
}

bool has_ended(int process) {
  pollfd wait{process, POLLIN, 0};
  return process >= 0 && ::poll(&wait, 1, 0) > 0;
}

/// Whether SIGTERM has ended the process, which the one that started it has not been told yet.
bool was_terminated(int process) {
  std::string status;
  std::getline(std::ifstream{fmt::format("/proc/{}/stat", process)}, status);
  const auto last = status.rfind(' ');  // the last field is the exit code, as waitpid has it
  return last != std::string::npos && std::atoi(status.c_str() + last) == SIGTERM;
}

WatchedJob describe_job(const PhaseTable& table, TableOnDemand<std::string> names, const WatchdogOptions& options,
                        const Heartbeats* heartbeats) {
  const std::vector<int> one_node(static_cast<std::size_t>(table.rows()), 0);
  return {.names = std::move(names),
          .nodes = heartbeats ? heartbeats->nodes() : NodeMap{one_node},
          .row = table.row(),
          .stall_timeout = options.stall_timeout,
          .tick = std::min(options.tick, options.stall_timeout / 10),
          .only_observes = options.on_stall != nullptr,
          .refusal = options.refusal,
          .saves_at_end = options.on_interrupted != nullptr,
          .launcher_waits = options.launcher_waits};
}

}  // namespace

class Watchdog::Thread {
 public:
  Thread(PhaseTable& table, TableOnDemand<std::string> names, WatchdogOptions options, EndJob end_job,
         Heartbeats* heartbeats)
      : table_{table},
        options_{std::move(options)},
        end_job_{std::move(end_job)},
        heartbeats_{heartbeats},
        rounds_{table, describe_job(table, std::move(names), options_, heartbeats), heartbeats},
        whereabouts_{table, job_, options_.signals},
        stop_{::eventfd(0, EFD_CLOEXEC)},
        signals_{options_.signals} {
    for (const int row : neighbours()) watch_process(row);
    JobTime::look(ticked_at_, false);
    thread_ = start_thread("for the watchdog", [this] { watch(); });
  }

  ~Thread() {
    stops_ = true;
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
    JobTime::end();
    // A signal came while the thread was stopping. It ends this process when nobody holds it back any more.
    if (signals_.has_come()) table_.set_terminated();
  }

  std::chrono::nanoseconds cpu_time() {
    clockid_t clock;
    timespec used = {};
    if (::pthread_getcpuclockid(thread_.native_handle(), &clock) == 0) ::clock_gettime(clock, &used);
    return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = WatchedJob::Seconds;

  // Less than WatchView::terminate_spread.
  static constexpr std::uint64_t ticks_until_looked_for = 4;

  // What `waits_` begins with.
  static constexpr std::size_t for_stop = 0, for_signal = 1, for_rows = 2, waits_of_its_own = 3;

  /// The ranks of this node whose end this one sees at once. Others see it, too, and each rank has two that do: a
  /// descriptor for each process would be as many as there are ranks. Silence shows an end to the others.
  std::vector<int> neighbours() const {
    constexpr std::size_t most = 2;
    const std::vector<int>& ranks = job_.nodes.ranks_on(job_.nodes.node_of(table_.row()));
    const auto own = std::ranges::find(ranks, table_.row()) - ranks.begin();
    std::vector<int> next;
    for (std::size_t i = 1; i <= std::min(most, ranks.size() - 1); ++i)
      next.push_back(ranks[(static_cast<std::size_t>(own) + i) % ranks.size()]);
    return next;
  }

  /// Unless it is this one, of another node, or there is no pidfd.
  void watch_process(int row) {
    const auto process = static_cast<pid_t>(table_.read(row).process.here);
    if (row == table_.row() || process == 0) return;
    memory_kills_.watch(process);
    auto descriptor = ::syscall(SYS_pidfd_open, process, 0);
    // It existed when it filled its row, so it has ended since.
    if (descriptor < 0 && errno == ESRCH) descriptor = ::eventfd(1, EFD_CLOEXEC);
    if (descriptor < 0)
      log::debug(fmt::format("no pidfd for {}: {}; its end shows by its silence", job_.names[row], error_text(errno)));
    else
      processes_[row] = Descriptor{static_cast<int>(descriptor)};
    waits_.reserve(waits_of_its_own + processes_.size());  // a tick needs no memory
  }

  void watch() {
    while (true) {
      const Wake wake = wait_for_tick();
      // The last heartbeat says how this rank left. A datagram may be lost.
      if (wake == Wake::stop) {
        for (int copies = 0; copies < 3; ++copies) beat(Heartbeat::last);
        return;
      }
      // Before the next heartbeat: others must not take this rank for one that was told to end.
      if (options_.on_orphaned && ::getppid() != launcher_) options_.on_orphaned();
      if (wake == Wake::terminate) {
        told_at_ = Clock::now();
        // A process that ends in time ends by itself.
        if (options_.on_interrupted) signals_.heed();
      }
      beat(told_at_ ? Heartbeat::now : Heartbeat::when_due);
      std::optional<Judgement> judged;
      std::string line;
      try {
        if (const auto limit = cpu_limit_reached(); limit && table_.phase() != Phase::leaving)
          return end_for_cpu_time(*limit);
        look_around();
        judged = rounds_.judge();
        if (judged->failure) line = "lockstep: " + judged->failure->sentence;
      } catch (const std::exception&) {  // no memory for a look: the next may have some
        if (told_at_) die_of_signal();
        continue;
      }
      JobTime::look(ticked_at_, judged->was_paused);
      do_beside(*judged);
      if (judged->failure) return report(*judged->failure, line);
      act(judged->last_act);
    }
  }

  /// What the job can do without.
  void do_beside(const Judgement& judged) {
    try {
      whereabouts_.act(judged, seen_);
      if (judged.stall && rounds_.tells_of(*judged.stall)) warn_of(*judged.stall);
      if (judged.lost_heartbeats && rounds_.warns()) log::warning(*judged.lost_heartbeats);
    } catch (const std::exception&) {  // no memory for it
    }
  }

  void look_around() {
    seen_.killed.clear();
    rounds_.look_around(
        [this](int row, PhaseTable::Snapshot& now, Observation::Row& sight) { look_at(row, now, sight); });
    seen_.calls = detail::device_calls();
    seen_.took = took_;
    if (told_at_) seen_.since_told = Clock::now() - *told_at_;
    seen_.told_by_parent = signals_.came_from_parent();
    seen_.takes_a_line = stderr_takes_a_line();
    whereabouts_.look(seen_);
  }

  void look_at(int row, PhaseTable::Snapshot& now, Observation::Row& sight) {
    using Process = Observation::Process;
    if (!processes_.contains(row) && rounds_.silent_ticks(row) == ticks_until_looked_for) watch_process(row);
    const auto process = processes_.find(row);
    if (process == processes_.end()) return;
    sight.process = has_ended(process->second.get()) ? Process::ended : Process::running;
    if (sight.process != Process::ended) return;
    // Who leaves properly says so before it ends.
    now = table_.read(row);
    if (options_.signals == KeptSignals::Keep::none &&
        (terminated_.contains(row) || was_terminated(static_cast<pid_t>(now.process.here)))) {
      terminated_.insert(row);
      now.terminated = true;
    }
    if (now.phase == Phase::leaving || now.terminated) return;
    if (std::string why = memory_kills_.told_of(static_cast<pid_t>(now.process.here)); !why.empty())
      seen_.killed[row] = std::move(why);
  }

  void warn_of(const Finding& stall) {
    options_.on_stall ? options_.on_stall(stall.sentence) : log::warning(stall.sentence);
  }

  void act(LastAct act) {
    switch (act) {
      case LastAct::none: return;
      case LastAct::save: return options_.on_interrupted();
      case LastAct::say_and_end:
        if (claim_report(&table_, {})) say_interrupted();
        die_of_signal();
      case LastAct::end: die_of_signal();
    }
  }

  /// Prints `shorter` where there is no memory for the line.
  template <class MakeLine>
  static void say(const MakeLine& make_line, std::string_view shorter, int code) {
    try {
      print_last_line(make_line(), code);
    } catch (const std::exception&) {
      print_last_line(shorter, code);
    }
  }

  void say_interrupted() const {
    say([&] { return fmt::format("lockstep: interrupted {}", place_of(table_.read(table_.row()))); },
        "lockstep: interrupted", 128 + SIGTERM);
  }

  enum class Wake { tick, stop, terminate };

  Wake wait_for_tick() {
    // poll skips negative descriptors. Once this rank was told to end, its remaining time passes in ticks.
    waits_[for_stop].fd = stop_.get();
    waits_[for_signal].fd = told_at_ ? -1 : signals_.descriptor();
    waits_[for_rows].fd = rounds_.is_passing() ? heartbeats_->descriptor() : -1;
    waits_.resize(waits_of_its_own);
    for (const auto& [row, process] : processes_) {
      // A process that left the job properly would stay readable for ever.
      const auto seen = table_.read(row);
      const bool left = seen.phase == Phase::leaving || seen.terminated || terminated_.contains(row);
      if (!left) waits_.push_back({process.get(), POLLIN, 0});
    }
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(job_.tick);
    while (poll_until(until) && only_rows_have_come()) pass_rows_on();
    // SIGTERM first: on the way out, its message would be lost.
    if (waits_[for_signal].revents) return Wake::terminate;
    // There may have been no descriptor for it.
    return stops_ ? Wake::stop : Wake::tick;
  }

  /// Whether something came before that.
  bool poll_until(Clock::time_point until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    for (pollfd& wait : waits_) wait.revents = 0;
    return left.count() > 0 && ::poll(waits_.data(), waits_.size(), static_cast<int>(left.count())) > 0;
  }

  bool only_rows_have_come() const {
    return std::ranges::all_of(waits_,
                               [this](const pollfd& wait) { return wait.revents == 0 || &wait == &waits_[for_rows]; });
  }

  void pass_rows_on() {
    try {
      heartbeats_->pass_on(table_);
    } catch (const std::exception&) {  // no memory for it: they come again
    }
  }

  using Heartbeat = WatchRounds::Heartbeat;

  void beat(Heartbeat heartbeat) {
    took_ = Clock::now() - std::exchange(ticked_at_, Clock::now());
    table_.set_progress(detail::progress_count());
    // The other ranks must see it before this one ends: those of other nodes cannot see how it ends.
    if (told_at_) table_.set_terminated();
    try {
      rounds_.beat(heartbeat, told_at_.has_value());
      memory_kills_.look();
    } catch (const std::exception&) {  // no memory for it: the next tick may have some
    }
  }

  void report(const Finding& finding, const std::string& line) {
    while (rounds_.turn_to_report(finding) == WatchRounds::Turn::waits) pass(job_.tick);
    const bool elsewhere = finding.code == Error::ExitCode::peer_failed && has_lost_others();
    const int code = static_cast<int>(finding.code);
    if (finding.code == Error::ExitCode::peer_failed && !elsewhere) table_.note_lost(finding.rows.front());
    const bool printing = !elsewhere && claim_report(&table_, code);
    if (printing) print_last_line(line, code);
    if (options_.on_lost && !elsewhere)
      options_.on_lost(finding.sentence, static_cast<Error::ExitCode>(table_.code_of_report(code)));
    // The report is printed, or another rank is about to print it: from here on SIGTERM may end this process at once.
    signals_.let_through();
    // mpirun also reports a rank that died, and its exit code says more than ours, so it gets time to end the job. A
    // rank that did not print waits until the line is out; to another node's mpirun it travels through a daemon. If not
    // everyone can be told, each ends what it can, in its own time.
    const bool for_mpirun = finding.code == Error::ExitCode::peer_failed || !printing;
    if (for_mpirun && finding.reach == Reach::whole_job)
      pass(Seconds{3});
    else
      let_nodes_know();
    end_job_(static_cast<Error::ExitCode>(table_.code_of_report(code)), finding.reach);
    if (told_at_) die_of_signal();
  }

  /// Each rank has a limit of its own, and soon after it the kernel kills the process.
  void end_for_cpu_time(std::string_view reached) {
    constexpr int code = static_cast<int>(Error::ExitCode::peer_failed);
    if (claim_report(&table_, code)) {
      say_cpu_time(reached);
      let_nodes_know();
    } else {
      pass(Seconds{1});  // the printing rank ends the job, including this one
    }
    signals_.let_through();
    end_job_(static_cast<Error::ExitCode>(table_.code_of_report(code)), Reach::whole_job);
  }

  void say_cpu_time(std::string_view reached) const {
    const bool single = table_.rows() == 1;
    const auto line = [&] {
      return fmt::format("lockstep: {}: {} {}; it {}", single ? "error" : job_.names[table_.row()] + " failed",
                         single ? "this process" : "it", reached, describe(table_.read(table_.row())));
    };
    say(line, "lockstep: error: a process has used up its CPU time (SIGXCPU)",
        static_cast<int>(Error::ExitCode::peer_failed));
  }

  bool has_lost_others() const {
    try {
      return options_.has_lost_others && options_.has_lost_others();
    } catch (const std::exception&) {  // no memory to look at them
      return false;
    }
  }

  /// Lets time pass while this rank still shows signs of life.
  void pass(Seconds time) {
    for (std::uint64_t tick = 0; static_cast<double>(tick) * job_.tick < time; ++tick) {
      beat(Heartbeat::now);
      std::this_thread::sleep_for(job_.tick);
    }
  }

  void let_nodes_know() {
    if (heartbeats_) pass(Heartbeats::until_line_is_known);
  }

  [[noreturn]] void die_of_signal() {
    table_.set_terminated();
    // Other nodes must hear that a line was said before they miss this rank: each rank there hears it from one here.
    beat(Heartbeat::last);
    signals_.die();
  }

  PhaseTable& table_;
  WatchdogOptions options_;
  EndJob end_job_;
  Heartbeats* heartbeats_;
  WatchRounds rounds_;
  const WatchedJob& job_ = rounds_.job();
  MemoryKills memory_kills_;
  pid_t launcher_ = ::getppid();
  std::optional<Clock::time_point> told_at_;  ///< to end, by SIGTERM or SIGINT
  Clock::time_point ticked_at_ = Clock::now();
  Seconds took_{0};
  Whereabouts whereabouts_;
  Observation& seen_ = rounds_.seen();
  std::map<int, Descriptor> processes_;  ///< by row, of those that are watched: readable once they have ended
  std::set<int> terminated_;             ///< rows whose process SIGTERM has ended, if nobody keeps it
  std::vector<pollfd> waits_ = std::vector<pollfd>(waits_of_its_own, {-1, POLLIN, 0});  ///< and one for each process
  Descriptor stop_;
  std::atomic<bool> stops_ = false;
  KeptSignals signals_;
  std::thread thread_;
};

Watchdog::Watchdog(PhaseTable& table, TableOnDemand<std::string> names, WatchdogOptions options, EndJob end_job,
                   Heartbeats* heartbeats)
    : thread_{std::make_unique<Thread>(table, std::move(names), options, std::move(end_job), heartbeats)} {}

Watchdog::~Watchdog() = default;

std::chrono::nanoseconds Watchdog::cpu_time() const {
  return thread_->cpu_time();
}

}  // namespace lockstep
