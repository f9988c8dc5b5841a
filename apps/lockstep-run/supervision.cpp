#include "apps/lockstep-run/supervision.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

namespace lockstep::run {
namespace {

using Cause = JobReport::Cause;

constexpr int after_signal = 128;
// Codes of mpirun itself from here on: its errors are negative numbers.
constexpr int first_of_mpirun = 190;

std::string name_of_signal(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

Judgement judge_code(ExitCode code) {
  switch (code) {
    case ExitCode::done: return {Remedy::none, "the job is done"};
    case ExitCode::failure: return {Remedy::none, "the program failed"};
    case ExitCode::user_input: return {Remedy::none, "the input is wrong"};
    case ExitCode::mismatch: return {Remedy::none, "the ranks disagreed"};
    case ExitCode::peer_failed: return {Remedy::restart, "a rank failed"};
    case ExitCode::stall: return {Remedy::restart, "a rank stalled"};
    // The newest checkpoints may hold what the wrong replica computed.
    case ExitCode::replicas_differ: return {Remedy::none, "the replicas differed"};
    case ExitCode::checkpoint: return {Remedy::none, "a checkpoint could not be written or read"};
    case ExitCode::diverged: return {Remedy::none, "the training diverged"};
    case ExitCode::stopped: return {Remedy::stop, "the job ended early, as it was asked"};
  }
  return {Remedy::none, "the program ended by itself"};
}

/// No wait at first, for whom every second counts, and longer and longer while nothing gets better.
std::chrono::seconds delay_after(int failures_in_a_row) {
  constexpr int longest = 30;
  if (failures_in_a_row <= 1) return std::chrono::seconds{0};
  return std::chrono::seconds{failures_in_a_row > 6 ? longest : std::min(longest, 1 << (failures_in_a_row - 2))};
}

std::string count(int number, const char* thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

}  // namespace

Judgement judge(int exit_code, const JobReport& report) {
  if (report.cause == Cause::not_launched) return {Remedy::none, "mpirun could not run the program"};
  if (report.cause == Cause::interrupted) return {Remedy::none, "mpirun was told to end the job"};
  const Judgement by_code = judge_code(static_cast<ExitCode>(exit_code));
  const bool is_known = exit_code >= 0 && (exit_code <= static_cast<int>(ExitCode::diverged) ||
                                           exit_code == static_cast<int>(ExitCode::stopped));
  // The codes of lockstep say more than a line, but 1 is also mpirun's own.
  if (is_known && exit_code != static_cast<int>(ExitCode::failure)) return by_code;
  switch (report.cause) {
    case Cause::gone: return {Remedy::restart, "a rank is gone"};
    case Cause::stopped:
    case Cause::late: return {Remedy::restart, "a rank stalled"};
    case Cause::asked: return {Remedy::stop, "the job ended early, as it was asked"};
    case Cause::unknown:
    case Cause::interrupted:
    case Cause::not_launched: break;
  }
  if (!report.unreachable.empty()) return {Remedy::restart, "a host cannot be reached"};
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

Supervision::Supervision(SupervisionOptions options) : options_{std::move(options)}, hosts_{options_.hosts} {
  if (options_.min_ranks > options_.ranks)
    throw ConfigError{fmt::format("--min-ranks {}: expected at most the {} of -n", options_.min_ranks, options_.ranks)};
  if (!hosts_.empty() && slots_of(hosts_) < options_.ranks)
    throw ConfigError{fmt::format("-n {}: the hosts have {}; expected at least as many", options_.ranks,
                                  count(slots_of(hosts_), "slot"))};
}

/// 0 if no number of ranks that is allowed fits.
int Supervision::most_ranks_on(const std::vector<Host>& hosts) const {
  int ranks = options_.hosts.empty() ? options_.ranks : std::min(options_.ranks, slots_of(hosts));
  while (ranks >= options_.min_ranks && !options_.fits(ranks)) --ranks;
  return ranks >= options_.min_ranks ? ranks : 0;
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
  if (most_ranks_on(left) == 0) {
    lines.push_back(fmt::format("keeps host {}, although {}: too few slots would be left", hosts_[*found].name, why));
    return;
  }
  lines.push_back(fmt::format("leaves out host {}: {}", hosts_[*found].name, why));
  hosts_ = std::move(left);
}

void Supervision::leave_out_hosts(const JobEnd& end, std::vector<std::string>& lines) {
  const JobReport& report = end.report;
  for (const std::string& host : report.unreachable) leave_out(host, "it cannot be reached", lines);
  if (!report.unreachable.empty()) return;
  if (report.cause == Cause::stopped) leave_out(report.host, "a rank there stopped", lines);
  if (report.cause != Cause::gone) return;
  // A process may end for many reasons. A host where that happens again and again is one.
  if (!report.host.empty() && report.host == suspect_) {
    leave_out(report.host, "a rank there was gone twice in a row", lines);
    suspect_.clear();
  } else {
    suspect_ = report.host;
  }
}

Decision Supervision::after(const JobEnd& end) {
  const Judgement judgement = judge(end.exit_code, end.report);
  const auto over = [](int exit_code, std::vector<std::string> lines) {
    return Decision{.lines = std::move(lines), .start = {}, .exit_code = exit_code};
  };
  constexpr int stopped = static_cast<int>(ExitCode::stopped);
  switch (judgement.remedy) {
    case Remedy::none:
      if (end.exit_code == 0) return over(0, {});
      return over(end.exit_code, {fmt::format("ends with exit code {}, as a restart would not help: {}", end.exit_code,
                                              judgement.reason)});
    case Remedy::stop: return over(stopped, {fmt::format("ends with exit code {}: {}", stopped, judgement.reason)});
    case Remedy::restart: break;
  }
  const std::string why = fmt::format("{} (exit code {})", judgement.reason, end.exit_code);
  if (end.was_told_to_stop)
    return over(stopped, {fmt::format("ends with exit code {}, as it was told to stop, though without a last "
                                      "checkpoint: {}",
                                      stopped, why)});
  if (end.made_progress) {
    in_a_row_ = 0;
    suspect_.clear();
  }
  ++in_a_row_;
  if (restarts_ >= options_.max_restarts)
    return over(end.exit_code, {fmt::format("gives up after {}: {}", count(restarts_, "restart"), why)});
  if (in_a_row_ > most_in_a_row)
    return over(end.exit_code,
                {fmt::format("gives up after {} without a new checkpoint: {}", count(most_in_a_row, "restart"), why)});
  std::vector<std::string> lines;
  leave_out_hosts(end, lines);
  const Start start{most_ranks_on(hosts_), hosts_, delay_after(in_a_row_)};
  ++restarts_;
  lines.push_back(fmt::format("restart {} of {}, on {}{}: {}", restarts_, options_.max_restarts,
                              count(start.ranks, "rank"),
                              start.delay.count() > 0 ? fmt::format(", in {} s", start.delay.count()) : "", why));
  return {.lines = std::move(lines), .start = start, .exit_code = 0};
}

}  // namespace lockstep::run
