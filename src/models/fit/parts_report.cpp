#include "models/fit/parts_report.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/log.hpp>

#include "core/control/meeting_point.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

// A rank that takes longer now and then is no news, and the first steps allocate.
constexpr double shortest_seconds = 5;
constexpr std::int64_t fewest_steps = 10;

constexpr double worth_a_line = 0.05;

bool is_long_enough(double seconds, std::int64_t steps) {
  return seconds >= shortest_seconds && steps >= fewest_steps;
}

double in_seconds(nanoseconds time) {
  return std::chrono::duration<double>{time}.count();
}

/// The least that any replica spends.
BusyClock::Times least_of(std::span<const BusyClock::Times> replicas) {
  BusyClock::Times least = replicas.front();
  for (const BusyClock::Times& each : replicas)
    for (std::size_t part = 0; part < BusyClock::parts; ++part)
      least.busy[part] = std::min(least.busy[part], each.busy[part]);
  return least;
}

BusyClock::Part mostly_in(const BusyClock::Times& replica, const BusyClock::Times& least) {
  std::array<nanoseconds, BusyClock::parts> more{};
  for (std::size_t part = 0; part < more.size(); ++part) more[part] = replica.busy[part] - least.busy[part];
  return static_cast<BusyClock::Part>(std::ranges::max_element(more) - more.begin());
}

/// The clock of a rank as numbers that travel.
using Numbers = std::array<std::int64_t, BusyClock::parts + 2>;

Numbers to_numbers(const BusyClock::Times& times) {
  Numbers numbers{};
  for (std::size_t part = 0; part < BusyClock::parts; ++part) numbers[part] = times.busy[part].count();
  numbers[BusyClock::parts] = times.waiting.count();
  numbers.back() = times.queued.count();
  return numbers;
}

BusyClock::Times to_times(std::span<const std::int64_t> numbers) {
  BusyClock::Times times;
  for (std::size_t part = 0; part < BusyClock::parts; ++part) times.busy[part] = nanoseconds{numbers[part]};
  times.waiting = nanoseconds{numbers[BusyClock::parts]};
  times.queued = nanoseconds{numbers.back()};
  return times;
}

/// " (host b)" if all of them are there; otherwise empty.
std::string common_host(std::span<const int> replicas, const Observer::Parts& report) {
  const auto host = [&](int replica) { return report.replicas[static_cast<std::size_t>(replica)].host; };
  const std::string first = host(replicas.front());
  const bool all = std::ranges::all_of(replicas, [&](int replica) { return host(replica) == first; });
  return all && !first.empty() ? fmt::format(" (host {})", first) : "";
}

}  // namespace

Observer::Parts parts_of(std::span<const BusyClock::Times> replicas, std::span<const Job::Residence> residences) {
  const auto less_busy = [](const BusyClock::Times& a, const BusyClock::Times& b) {
    return a.all_busy() < b.all_busy();
  };
  const nanoseconds least_busy = std::ranges::min_element(replicas, less_busy)->all_busy();
  const BusyClock::Times least = least_of(replicas);
  const nanoseconds elapsed = replicas.front().elapsed();
  Observer::Parts report{.step = 0, .steps = 0, .seconds = in_seconds(elapsed), .replicas = {}};
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
    const BusyClock::Times& own = replicas[replica];
    const auto in = [&](BusyClock::Part part) { return in_seconds(own.busy[static_cast<std::size_t>(part)]); };
    const double late = in_seconds(own.all_busy() - least_busy);
    report.replicas.push_back({.replica = static_cast<int>(replica),
                               .name = residences[replica].task,
                               .host = residences[replica].host,
                               .data = in(BusyClock::Part::data),
                               .forward = in(BusyClock::Part::forward),
                               .backward = in(BusyClock::Part::backward),
                               .optimizer = in(BusyClock::Part::optimizer),
                               .checkpoint = in(BusyClock::Part::checkpoint),
                               .evaluation = in(BusyClock::Part::evaluation),
                               .other = in(BusyClock::Part::other),
                               .waiting = in_seconds(own.waiting),
                               .queued = in_seconds(own.queued),
                               .late = late > 0 ? late / in_seconds(elapsed) : 0,
                               .mostly = late > 0 ? std::string{name_of(mostly_in(own, least))} : ""});
  }
  return report;
}

std::vector<int> late_replicas(const Observer::Parts& report) {
  std::vector<int> late;
  if (!is_long_enough(report.seconds, report.steps)) return late;
  for (const Observer::Parts::Replica& each : report.replicas)
    if (each.late > worth_a_line) late.push_back(each.replica);
  std::ranges::stable_sort(late, std::ranges::greater{},
                           [&](int replica) { return report.replicas[static_cast<std::size_t>(replica)].late; });
  return late;
}

std::string line_about(std::span<const int> late, const Observer::Parts& report, std::span<const std::string> names) {
  const auto latest = static_cast<std::size_t>(late.front());
  std::string whom = names[latest];
  if (late.size() > 1) {
    std::vector<int> sorted{late.begin(), late.end()};
    std::ranges::sort(sorted);
    whom = fmt::format("replicas {}{}", fmt::join(sorted, ", "), common_host(late, report));
  }
  return fmt::format("{}: the others waited {:.0f}% of the time for {}, mostly in {}", whom,
                     100 * report.replicas[latest].late, late.size() > 1 ? "them" : "it",
                     report.replicas[latest].mostly);
}

PartsReport::PartsReport(Strategy& strategy, BusyClock& clock, std::int64_t step)
    : strategy_{strategy}, clock_{clock}, step_{step} {}

void PartsReport::Sum::add(std::int64_t its_steps, std::span<const BusyClock::Times> times) {
  steps += its_steps;
  replicas.resize(times.size());
  for (std::size_t replica = 0; replica < times.size(); ++replica) replicas[replica] += times[replica];
}

void PartsReport::gather(std::int64_t step) {
  const Numbers mine = to_numbers(clock_.lap());
  const std::vector<std::int64_t> all = inside(strategy_).group().meeting().gather(mine);
  Sum sum{.steps = step - std::exchange(step_, step), .replicas = {}};
  for (std::size_t first = 0; first < all.size(); first += mine.size())
    sum.replicas.push_back(to_times(std::span{all}.subspan(first, mine.size())));
  gathered_ = report_of(sum);
  whole_.add(sum.steps, sum.replicas);
  if (strategy_.rank() != 0) return;
  to_judge_.add(sum.steps, sum.replicas);
  warn_of_late();
}

void PartsReport::tell(Observer& observer) {
  if (const auto report = std::exchange(gathered_, std::nullopt)) observer.on_parts(*report);
}

Observer::Parts PartsReport::whole() const {
  return report_of(whole_);
}

Observer::Parts PartsReport::report_of(const Sum& sum) const {
  if (sum.replicas.empty()) return {};
  Observer::Parts report = parts_of(sum.replicas, inside(strategy_).group().residences());
  report.step = step_;
  report.steps = sum.steps;
  return report;
}

void PartsReport::warn_of_late() {
  if (!is_long_enough(in_seconds(to_judge_.replicas.front().elapsed()), to_judge_.steps)) return;
  const Observer::Parts report = report_of(std::exchange(to_judge_, {}));
  const std::vector<int> late = late_replicas(report);
  const std::size_t known = warned_of_.size();
  warned_of_.insert(late.begin(), late.end());
  if (warned_of_.size() == known) return;
  log::warning(line_about(late, report, inside(strategy_).group().meeting().names()));
}

}  // namespace lockstep
