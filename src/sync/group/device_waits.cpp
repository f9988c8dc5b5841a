#include "sync/group/device_waits.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/control/exceptions.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/device/device.hpp"

namespace lockstep::detail {
namespace {

// At most so much counts between two looks: in a longer time the process was stopped, or had no processor.
constexpr Seconds longest_look{0.05};

// How much longer than the limit the others have to find out who is late.
constexpr Seconds for_the_watchdogs{2};

/// How long a loop has waited.
class Time {
 public:
  explicit Time(PollClock& clock) : clock_{clock} {}

  void begin_again() { waited_.begin_again(); }

  /// Lets some pass. Returns how much has passed since the beginning.
  Seconds pass() {
    clock_.pause(clock_.now() - start_);
    return waited_.look(clock_.now());
  }

 private:
  PollClock& clock_;
  Seconds start_ = clock_.now();
  CountedTime waited_{start_, longest_look};
};

/// Shows what the rank does in the phase table, from the first wait on to the end of its own life.
class Shown {
 public:
  Shown() = default;
  Shown(const Shown&) = delete;
  ~Shown() { leave(); }

  void show(MeetingPoint& meeting, const MeetingPoint::LaterWait* others) {
    if (meeting_ != &meeting) leave();
    meeting_ = &meeting;
    meeting.wait_for_device(others);
  }

 private:
  void leave() {
    if (meeting_) meeting_->leave_device();
  }

  MeetingPoint* meeting_ = nullptr;
};

}  // namespace

DeviceWaits::DeviceWaits(MeetingPoint& all, Stream& compute, std::string name, detail::DevicePatience patience,
                         EndJob end_job, std::shared_ptr<PollClock> clock)
    : all_{all},
      compute_{compute},
      name_{std::move(name)},
      patience_{std::move(patience)},
      end_job_{std::move(end_job)},
      clock_{std::move(clock)} {
  add(all_);
}

DeviceWaits::~DeviceWaits() {
  remove(all_);
}

void DeviceWaits::add(MeetingPoint& meeting) {
  meeting.set_settle([this] { settle(); });
}

void DeviceWaits::remove(MeetingPoint& meeting) {
  meeting.set_settle([] {});
  std::erase_if(collectives_, [&](const Collective& each) { return each.meeting == &meeting; });
}

void DeviceWaits::enqueue_collective(MeetingPoint& meeting, const std::function<void()>& enqueue) {
  const MeetingPoint::LaterWait wait = meeting.count_later_wait();
  auto reached = inside(compute_).record();
  // NCCL may wait for the others' hosts here, to connect the ranks.
  {
    Shown shown;
    shown.show(meeting, &wait);
    enqueue();
  }
  collectives_.push_back({std::move(reached), inside(compute_).record(), &meeting, wait});
}

void DeviceWaits::settle() {
  if (collectives_.empty()) return;
  try {
    until([this] { return collectives_.empty(); });
  } catch (...) {
    end_job_(std::current_exception());
  }
}

/// Forgets what has happened.
void DeviceWaits::advance() {
  while (!collectives_.empty()) {
    Collective& first = collectives_.front();
    if (first.reached && first.reached->done()) first.reached.reset();
    if (first.reached || !first.passed->done()) return;
    collectives_.pop_front();
  }
}

/// That in which the GPU waits for the others; null if it has work of its own.
auto DeviceWaits::with_others() const -> const Collective* {
  return collectives_.empty() || collectives_.front().reached ? nullptr : &collectives_.front();
}

void DeviceWaits::until(const std::function<bool()>& done) {
  if (std::this_thread::get_id() == thread_) return poll(done);
  // Only one thread meets the others. What the other threads wait for is the device's own work.
  Time time{*clock_};
  for (bool has_stalled = false; !done();)
    if (time.pass() > patience_.stall_timeout && !std::exchange(has_stalled, true)) stall<StallError>(own_work());
}

/// On the thread that meets the others.
void DeviceWaits::poll(const std::function<bool()>& done) {
  Shown shown;
  Time time{*clock_};
  std::optional<std::pair<MeetingPoint*, std::uint64_t>> in;
  bool has_stalled = false;
  std::optional<std::uint64_t> progress;  // of the others, as long before the limit as one of them may be late
  while (true) {
    advance();
    if (done()) return;
    const Collective* const with_others = this->with_others();
    MeetingPoint& meeting = with_others ? *with_others->meeting : all_;
    if (const std::pair now{&meeting, with_others ? with_others->wait.number : 0}; now != in) {
      in = now;
      has_stalled = false;
      progress.reset();
      time.begin_again();
      shown.show(meeting, with_others ? &with_others->wait : nullptr);
    }
    const Seconds limit = patience_.stall_timeout + (with_others ? for_the_watchdogs : Seconds{0});
    const Seconds waited = time.pass();
    if (with_others && !progress && waited > for_the_watchdogs) progress = meeting.progress();
    if (waited <= limit || has_stalled) continue;
    if (with_others && progress != meeting.progress()) {
      progress.reset();
      time.begin_again();
      continue;
    }
    has_stalled = true;
    if (with_others)
      stall<CommonStall>(fmt::format("{}; this was {}", collective(with_others->wait.tag), meeting.place()));
    else
      stall<StallError>(fmt::format("{}; it was {}", own_work(), meeting.place()));
  }
}

std::string DeviceWaits::own_work() const {
  return fmt::format("its work on {} has not ended for {:g} s", name_, patience_.stall_timeout.count());
}

std::string DeviceWaits::collective(const Tag& tag) const {
  return fmt::format("{} has not ended on {} for {:g} s, and no rank is late for it", describe(tag), name_,
                     patience_.stall_timeout.count());
}

template <class Stall>
void DeviceWaits::stall(const std::string& sentence) {
  if (patience_.on_stall) return patience_.on_stall(sentence);
  end_job_(std::make_exception_ptr(Stall{sentence}));
}

}  // namespace lockstep::detail
