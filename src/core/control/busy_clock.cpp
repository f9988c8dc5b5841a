#include "core/control/busy_clock.hpp"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

thread_local BusyClock* clock_of_thread = nullptr;
thread_local BusyClock* clock_that_is_off = nullptr;

constexpr std::array<std::string_view, BusyClock::parts> part_names{"data",       "forward",    "backward", "optimizer",
                                                                    "checkpoint", "evaluation", "other"};

}  // namespace

std::chrono::nanoseconds BusyClock::Times::all_busy() const {
  return std::accumulate(busy.begin(), busy.end(), std::chrono::nanoseconds{});
}

BusyClock::Times& BusyClock::Times::operator+=(const Times& other) {
  for (std::size_t part = 0; part < parts; ++part) busy[part] += other.busy[part];
  waiting += other.waiting;
  queued += other.queued;
  return *this;
}

BusyClock::BusyClock(TimeSource source)
    : source_{std::move(source)},
      run_delay_{source_.run_delay()},
      clock_{Part::other, source_.now},
      outer_{std::exchange(clock_of_thread, this)} {
  if (!source_.sleep) source_.sleep = [](std::chrono::nanoseconds length) { std::this_thread::sleep_for(length); };
}

BusyClock::~BusyClock() {
  trace::Ring::end(span_);
  if (clock_that_is_off == this) clock_that_is_off = nullptr;
  clock_of_thread = outer_;
}

BusyClock::Times BusyClock::lap() {
  if (!slow_.empty()) drag();
  const auto all = clock_.lap(clock_.current());
  Times times;
  std::copy_n(all.of_part.begin(), parts, times.busy.begin());
  times.waiting = all.of(waiting);
  const std::chrono::nanoseconds run_delay = source_.run_delay();
  times.queued = run_delay - std::exchange(run_delay_, run_delay);
  return times;
}

void BusyClock::slow_down(std::vector<Part> slow, double factor) {
  slow_ = std::move(slow);
  factor_ = factor;
}

/// Goes on to what the rank does now.
void BusyClock::change() {
  const bool waits = device_ == DeviceWait::none ? waits_ > 0 : device_ == DeviceWait::others;
  const Part next = waits ? waiting : own_;
  if (next == clock_.current()) return;
  if (!slow_.empty()) drag();
  clock_.enter(next);
  if (!trace::Ring::is_on()) return;
  span_ = trace::Ring::next(span_, next == waiting ? trace::Kind::wait : trace::Kind::part, trace::parts_track,
                            next == waiting ? "waiting" : name_of(next), trace::Time::clock::now());
}

/// At the end of a part. A sleep takes longer than it should, so the next one is shorter.
void BusyClock::drag() {
  if (std::ranges::find(slow_, clock_.current()) == slow_.end()) return;
  const std::chrono::nanoseconds worked = clock_.in_current();
  owed_ +=
      std::chrono::round<std::chrono::nanoseconds>((factor_ - 1) * std::chrono::duration<double, std::nano>{worked});
  if (owed_ <= std::chrono::nanoseconds{}) return;
  try {
    source_.sleep(owed_);
  } catch (...) {
    slow_.clear();  // a simulated job is over, which the rank finds out at its next call
  }
  owed_ -= clock_.in_current() - worked;
}

void BusyClock::enter(Part part) {
  if (!clock_of_thread) return;
  clock_of_thread->own_ = part;
  clock_of_thread->change();
}

void BusyClock::wait_for_device(DeviceWait wait) {
  if (!clock_of_thread) return;
  clock_of_thread->device_ = wait;
  clock_of_thread->change();
}

BusyClock::Off::Off() {
  clock_that_is_off = std::exchange(clock_of_thread, nullptr);
}

BusyClock::Off::~Off() {
  if (clock_that_is_off) clock_of_thread = std::exchange(clock_that_is_off, nullptr);
}

BusyClock::During::During(Part part) : clock_{clock_of_thread}, interrupted_{clock_ ? clock_->own_ : part} {
  BusyClock::enter(part);
}

BusyClock::During::~During() {
  if (clock_) BusyClock::enter(interrupted_);
}

BusyClock::Waiting::Waiting() : clock_{clock_of_thread} {
  if (clock_ && ++clock_->waits_ == 1) clock_->change();
}

BusyClock::Waiting::~Waiting() {
  if (clock_ && --clock_->waits_ == 0) clock_->change();
}

std::string_view name_of(BusyClock::Part part) {
  return part_names[static_cast<std::size_t>(part)];
}

std::optional<BusyClock::Part> part_named(std::string_view name) {
  const auto found = std::ranges::find(part_names, name);
  if (found == part_names.end()) return std::nullopt;
  return static_cast<BusyClock::Part>(found - part_names.begin());
}

}  // namespace lockstep
