#include "apps/lockstep-run/supervision.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "core/cluster/counted.hpp"

namespace lockstep::run {
namespace {

using Cause = JobReport::Cause;

constexpr int after_signal = 128;
constexpr int lost_daemon = 205;  // of Open MPI 4
constexpr const char* wrong_twice = "a rank there computed or read wrong twice";

std::string name_of_signal(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

Judgement judge_miscomputed(const JobReport& report, bool skips_wrong_hosts) {
  if (!skips_wrong_hosts) return {Remedy::none, "a rank computed or read wrong"};
  if (report.host.empty()) return {Remedy::none, "a rank computed or read wrong, and none was named"};
  return {Remedy::restart, "a rank computed or read wrong"};
}

Judgement judge_code(Error::ExitCode code, const JobReport& report, bool skips_wrong_hosts) {
  switch (code) {
    case Error::ExitCode::done: return {Remedy::none, "the job is done"};
    case Error::ExitCode::failure: return {Remedy::none, "the program failed"};
    case Error::ExitCode::user_input: return {Remedy::none, "the input is wrong"};
    case Error::ExitCode::mismatch: return {Remedy::none, "the ranks disagreed"};
    case Error::ExitCode::peer_failed: return {Remedy::restart, "a rank failed"};
    case Error::ExitCode::stall: return {Remedy::restart, "a rank stalled"};
    // The newest checkpoints may hold what the wrong replica computed.
    case Error::ExitCode::replicas_differ: return {Remedy::none, "the replicas differed"};
    case Error::ExitCode::checkpoint: return {Remedy::none, "a checkpoint could not be written or read"};
    case Error::ExitCode::diverged: return {Remedy::none, "the training diverged"};
    case Error::ExitCode::miscomputed: return judge_miscomputed(report, skips_wrong_hosts);
    case Error::ExitCode::stopped: return {Remedy::stop, "the job ended early, as it was asked"};
  }
  return {Remedy::none, "the program ended by itself"};
}

/// No wait at first, for whom every second counts, and longer and longer while nothing gets better.
std::chrono::seconds delay_after(int failures_in_a_row) {
  constexpr int longest = 30;
  if (failures_in_a_row <= 1) return std::chrono::seconds{0};
  return std::chrono::seconds{failures_in_a_row > 6 ? longest : std::min(longest, 1 << (failures_in_a_row - 2))};
}

/// Whether ranks, or mpirun, have said that the job was ended.
bool tells_of_failure(const JobReport& report) {
  const bool is_of_rank = report.cause == Cause::gone || report.cause == Cause::stopped ||
                          report.cause == Cause::late || report.cause == Cause::failed;
  return is_of_rank || !report.lost.empty() || !report.unreachable.empty();
}

std::string why_without(const std::string& host, const JobEnd& end) {
  const bool silent = std::ranges::find(end.silent, host) != end.silent.end();
  return silent ? "does not answer" : "cannot be reached";
}

}  // namespace

Judgement judge(int exit_code, const JobReport& report, bool skips_wrong_hosts) {
  if (report.cause == Cause::not_launched) return {Remedy::none, "mpirun could not run the program"};
  // mpirun that loses a host ends the ranks of the others in the same way as one that is told to.
  if (report.cause == Cause::interrupted && exit_code < first_of_mpirun && report.lost.empty())
    return {Remedy::none, "mpirun was told to end the job"};
  const Judgement by_code = judge_code(static_cast<Error::ExitCode>(exit_code), report, skips_wrong_hosts);
  const bool is_known = exit_code >= 0 && (exit_code <= static_cast<int>(Error::ExitCode::miscomputed) ||
                                           exit_code == static_cast<int>(Error::ExitCode::stopped));
  // Some MPIs end with the number of the signal that ended a rank, and 9 is that of SIGKILL.
  const bool is_signal = exit_code == static_cast<int>(Error::ExitCode::miscomputed) &&
                         report.cause != Cause::miscomputed && report.cause != Cause::unknown;
  // The codes of lockstep say more than a line, but 1 is also mpirun's own.
  if (is_known && !is_signal && exit_code != static_cast<int>(Error::ExitCode::failure)) return by_code;
  switch (report.cause) {
    case Cause::gone: return {Remedy::restart, "a rank is gone"};
    case Cause::stopped:
    case Cause::late: return {Remedy::restart, "a rank stalled"};
    case Cause::asked: return {Remedy::stop, "the job ended early, as it was asked"};
    case Cause::unknown:
    case Cause::failed:
    case Cause::interrupted:
    case Cause::miscomputed:
    case Cause::not_launched: break;
  }
  if (!report.unreachable.empty()) return {Remedy::restart, "a host cannot be reached"};
  if (!report.lost.empty()) return {Remedy::restart, "mpirun lost its daemon on a host"};
  if (is_known) return by_code;
  if (exit_code >= first_of_mpirun) return {Remedy::restart, "mpirun failed"};
  if (exit_code > after_signal && exit_code <= after_signal + SIGRTMAX) {
    const int signal = exit_code - after_signal;
    // A rank that is just starting does not know what the signal means.
    if (signal == SIGUSR1) return {Remedy::stop, "the job was asked to end before it had begun"};
    return {Remedy::restart, fmt::format("{} ended a rank", name_of_signal(signal))};
  }
  return {Remedy::none, "the program ended by itself"};
}

std::string failure_of(int exit_code, const JobReport& report) {
  constexpr std::string_view place = " was in step ";
  const bool failed = report.cause == Cause::failed || report.cause == Cause::gone;
  const bool by_itself = exit_code == static_cast<int>(Error::ExitCode::failure) ||
                         (exit_code == static_cast<int>(Error::ExitCode::peer_failed) && report.cause == Cause::failed);
  const auto step = report.failure.rfind(place);
  if (!failed || !by_itself || step == std::string::npos) return {};
  return report.failure.substr(0, report.failure.find_first_not_of("0123456789", step + place.size()));
}

int code_of_job(MpiKind mpi, int exit_code, const JobReport& report) {
  if (mpi == MpiKind::open_mpi_5 && exit_code == 0 && tells_of_failure(report)) return lost_daemon;
  if (mpi != MpiKind::mpich || exit_code < SIGILL || exit_code > SIGSYS) return exit_code;
  // The others end a job whose rank is gone with one of these codes, unless mpiexec ends it first.
  const bool is_of_others = exit_code <= static_cast<int>(Error::ExitCode::stall);
  const bool is_said = report.has_spoken && (report.cause != Cause::gone || is_of_others);
  return is_said ? exit_code : after_signal + exit_code;
}

Supervision::Supervision(SupervisionOptions options) : options_{std::move(options)}, hosts_{options_.hosts} {
  if (options_.min_ranks > options_.ranks)
    throw ConfigError{fmt::format("--min-ranks {}: expected at most the {} of -n", options_.min_ranks, options_.ranks)};
  if (!hosts_.empty() && slots_of(hosts_) < options_.ranks)
    throw ConfigError{fmt::format("-n {}: the hosts have {}; expected at least as many", options_.ranks,
                                  counted(slots_of(hosts_), "slot"))};
}

/// As many as were asked for, or else the smallest of the fastest; 0 if no number that is allowed can go on.
int Supervision::best_ranks_on(const std::vector<Host>& hosts) const {
  const int most = options_.hosts.empty() ? options_.ranks : std::min(options_.ranks, slots_of(hosts));
  if (most == options_.ranks && options_.relative_time(most)) return most;
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int ranks = options_.min_ranks; ranks <= most; ++ranks)
    if (const std::optional<double> time = options_.relative_time(ranks); time && *time < least) {
      best = ranks;
      least = *time;
    }
  return best;
}

void Supervision::leave_out(const std::string& name, const std::string& why, std::vector<std::string>& lines) {
  const auto found = find_host(hosts_, name, options_.this_host);
  if (!found) {
    if (!hosts_.empty() && !name.empty())
      lines.push_back(fmt::format("cannot leave out host {}, which is not in the list of hosts: {}", name, why));
    return;
  }
  std::vector<Host> left = hosts_;
  left.erase(left.begin() + static_cast<std::ptrdiff_t>(*found));
  // It may come back, and without it there is no job.
  if (best_ranks_on(left) == 0) {
    lines.push_back(fmt::format("keeps host {}, although {}: too few slots would be left", hosts_[*found].name, why));
    return;
  }
  lines.push_back(fmt::format("leaves out host {}: {}", hosts_[*found].name, why));
  hosts_ = std::move(left);
}

void Supervision::leave_out_hosts(const JobEnd& end, std::vector<std::string>& lines) {
  const JobReport& report = end.report;
  for (const std::string& host : report.unreachable) leave_out(host, "it " + why_without(host, end), lines);
  if (!report.unreachable.empty()) return;
  if (report.cause == Cause::stopped) leave_out(report.host, "a rank there stopped", lines);
  // A bit may flip once, on any host. One where that happens again is broken.
  if (report.cause == Cause::miscomputed && !wrong_.insert(report.host).second)
    leave_out(report.host, wrong_twice, lines);
  // A process may end for many reasons. A host where that happens again and again is one. A daemon of mpirun takes the
  // ranks there along.
  const std::string host = report.cause == Cause::gone ? report.host : report.lost.empty() ? "" : report.lost.front();
  if (report.cause != Cause::gone && host.empty()) return;
  if (!host.empty() && host == suspect_) {
    leave_out(host, "a rank there was gone twice in a row", lines);
    suspect_.clear();
  } else {
    suspect_ = host;
  }
}

std::vector<std::string> Supervision::in_doubt(const JobEnd& end) const {
  if (!end.report.unreachable.empty() || end.was_told_to_stop) return {};
  std::vector<Host> hosts;
  for (const std::string& name : end.report.lost)
    if (const auto found = find_host(hosts_, name, options_.this_host)) hosts.push_back(hosts_[*found]);
  // With -q mpirun does not say that it could not start its daemons, and it never says which. Its code may be 1 then.
  const bool may_be = end.exit_code == static_cast<int>(Error::ExitCode::failure) && end.report.cause == Cause::unknown;
  if (end.report.lost.empty() && !end.has_begun && (end.exit_code >= first_of_mpirun || may_be)) hosts = hosts_;
  return elsewhere(hosts, options_.this_host);
}

/// What ends it, before any host is left out.
std::optional<Decision> Supervision::over_without_restart(const JobEnd& end, const Judgement& judgement) {
  const auto over = [](int exit_code, std::string line) {
    return Decision{.lines = {std::move(line)}, .start = {}, .exit_code = exit_code};
  };
  constexpr int stopped = static_cast<int>(Error::ExitCode::stopped),
                wrong = static_cast<int>(Error::ExitCode::user_input);
  switch (judgement.remedy) {
    case Remedy::none:
      if (end.exit_code == 0) return Decision{};
      return over(end.exit_code, fmt::format("ends with exit code {}, as a restart would not help: {}", end.exit_code,
                                             judgement.reason));
    case Remedy::stop: return over(stopped, fmt::format("ends with exit code {}: {}", stopped, judgement.reason));
    case Remedy::restart: break;
  }
  if (end.was_told_to_stop)
    return over(stopped, fmt::format("ends with exit code {}, as it was told to stop, though without a last "
                                     "checkpoint: {} (exit code {})",
                                     stopped, judgement.reason, end.exit_code));
  const std::vector<std::string>& unreachable = end.report.unreachable;
  if (restarts_ == 0 && !end.has_begun && !options_.may_start_without && !unreachable.empty() &&
      end.report.lost.empty())
    return over(wrong,
                fmt::format("error: {} {}; expected every host to answer at the first start (--min-ranks goes on "
                            "without)",
                            unreachable.size() == 1 ? "host" : "hosts",
                            unreachable.size() == 1
                                ? fmt::format("{} {}", unreachable.front(), why_without(unreachable.front(), end))
                                : fmt::format("{} cannot be reached", fmt::join(unreachable, ", "))));
  const std::string before = std::exchange(failure_, failure_of(end.exit_code, end.report));
  if (!before.empty() && before == failure_)
    return over(end.exit_code, fmt::format("ends with exit code {}, as a restart did not help: the job failed in the "
                                           "same way, in the same step",
                                           end.exit_code));
  return std::nullopt;
}

Decision Supervision::after(const JobEnd& end) {
  Judgement judgement = judge(end.exit_code, end.report, options_.skips_wrong_hosts);
  if (end.waited_for_start.count() > 0)
    judgement = {Remedy::restart, fmt::format("it had not begun after {} s", end.waited_for_start.count())};
  if (end.mpirun_was_killed && judgement.remedy == Remedy::restart && end.report.cause == Cause::unknown)
    judgement.reason = fmt::format("{} ended mpirun", name_of_signal(end.exit_code - after_signal));
  // The job may have said it itself, and what this host counts says nothing about another.
  const std::vector<Host> blamed{{end.report.host, 1}};
  const bool here = end.report.host.empty() || elsewhere(blamed, options_.this_host).empty();
  if (here && !end.memory.empty() && end.report.failure.find(end.memory) == std::string::npos)
    judgement.reason += ": " + end.memory;
  if (auto decision = over_without_restart(end, judgement)) return *std::move(decision);
  const std::string why = fmt::format("{} (exit code {})", judgement.reason, end.exit_code);
  if (end.made_progress) {
    in_a_row_ = 0;
    suspect_.clear();
  }
  ++in_a_row_;
  const auto give_up = [&](int restarts, const char* how) {
    return Decision{.lines = {fmt::format("gives up after {}{}: {}", counted(restarts, "restart"), how, why)},
                    .start = {},
                    .exit_code = end.exit_code};
  };
  if (restarts_ >= options_.max_restarts) return give_up(restarts_, "");
  if (in_a_row_ > most_in_a_row) return give_up(most_in_a_row, " without a new checkpoint");
  std::vector<std::string> lines;
  const bool is_broken = end.report.cause == Cause::miscomputed && wrong_.contains(end.report.host);
  const std::size_t hosts = hosts_.size();
  leave_out_hosts(end, lines);
  if (is_broken && hosts_.size() == hosts) {
    lines.push_back(fmt::format("ends with exit code {}: host {} computed or read wrong twice, and cannot be left out",
                                end.exit_code, end.report.host));
    return {.lines = std::move(lines), .start = {}, .exit_code = end.exit_code};
  }
  const Start start{best_ranks_on(hosts_), hosts_, delay_after(in_a_row_)};
  ++restarts_;
  lines.push_back(fmt::format("restart {} of {}, on {}{}: {}", restarts_, options_.max_restarts,
                              counted(start.ranks, "rank"),
                              start.delay.count() > 0 ? fmt::format(", in {} s", start.delay.count()) : "", why));
  return {.lines = std::move(lines), .start = start, .exit_code = 0};
}

}  // namespace lockstep::run
