#include "job/sim/scheduler.hpp"

#include <utility>

#include "core/base/start_thread.hpp"

namespace lockstep::sim {

Scheduler::Scheduler(int ranks, std::uint64_t seed, Overseer& overseer)
    : overseer_{overseer}, random_{seed, RandomStream::Purpose::simulation, 0} {
  for (int rank = 0; rank < ranks; ++rank) ranks_.push_back(std::make_unique<Rank>());
}

void Scheduler::run(const std::function<void(int rank)>& body) {
  struct Join {
    Scheduler& scheduler;
    ~Join() { scheduler.unwind(); }
  } const join{*this};
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    of(rank).thread = start_thread("for a simulated rank", [this, rank, &body] { thread_of(rank, body); });
    ready_.push_back(rank);
  }
  hand_over(outside_);
}

void Scheduler::thread_of(int rank, const std::function<void(int)>& body) {
  Rank& self = of(rank);
  self.baton.take();
  try {
    if (!self.unwinding) body(rank);
  } catch (const Unwind&) {
  }
  self.state = State::ended;
  // Not choose() for a rank that is unwound: `unwind` waits for exactly this.
  (self.unwinding ? outside_ : choose()).give();
}

/// Every thread that has not ended waits for its baton. It gets the baton in order to leave.
void Scheduler::unwind() {
  for (const auto& rank : ranks_) {
    if (!rank->thread.joinable()) continue;
    if (rank->state != State::ended) {
      rank->unwinding = true;
      rank->baton.give();
      outside_.take();
    }
    rank->thread.join();
  }
}

void Scheduler::hand_over(Baton& mine) {
  Baton& next = choose();
  if (&next == &mine) return;
  next.give();
  mine.take();
}

Baton& Scheduler::choose() {
  while (ready_.empty()) {
    if (waiting_ == 0) return outside_;
    if (!move_clock()) overseer_.stuck();
  }
  const auto drawn = ready_.begin() + static_cast<std::ptrdiff_t>(draw(ready_.size()));
  Rank& rank = of(*drawn);
  *drawn = ready_.back();
  ready_.pop_back();
  rank.state = State::running;
  return rank.baton;
}

/// Moves the clock to the next event. False if no coming event wakes a rank.
bool Scheduler::move_clock() {
  if (to_be_woken_ == 0) return false;
  const auto stale = [&](const Event& event) { return event.rank >= 0 && of(event.rank).wake != event.order; };
  while (stale(events_.top())) events_.pop();
  overseer_.before(events_.top().time);
  if (!ready_.empty()) return true;  // the overseer found a reason for them to continue earlier
  const Event event = events_.top();
  events_.pop();
  move_to(event.time);
  if (event.rank >= 0) {
    make_ready(event.rank);
  } else {
    event.act();
  }
  return true;
}

void Scheduler::make_ready(int rank) {
  Rank& self = of(rank);
  if (self.wake != 0) --to_be_woken_;
  self.wake = 0;
  --waiting_;
  self.state = State::ready;
  ready_.push_back(rank);
}

void Scheduler::pause(int rank) {
  Rank& self = of(rank);
  if (self.unwinding) throw Unwind{};
  if (self.state == State::running) {
    self.state = State::ready;
    ready_.push_back(rank);
  }
  hand_over(self.baton);
  if (self.unwinding) throw Unwind{};
}

void Scheduler::wait(int rank) {
  Rank& self = of(rank);
  if (self.unwinding) throw Unwind{};
  if (self.state == State::running) {
    self.state = State::waiting;
    ++waiting_;
    if (self.wake != 0) ++to_be_woken_;
  }
  hand_over(self.baton);
  if (self.unwinding) throw Unwind{};
}

void Scheduler::wake(int rank, Time at) {
  Rank& self = of(rank);
  if (!is_live(rank)) return;
  if (self.state == State::waiting && self.wake == 0) ++to_be_woken_;
  self.wake = ++events_made_;
  events_.push({std::max(at, now_), self.wake, rank, {}});
}

void Scheduler::wake_all() {
  events_ = {};
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (of(rank).state == State::waiting) make_ready(rank);
    of(rank).wake = 0;
  }
}

void Scheduler::park(int rank) {
  Rank& self = of(rank);
  if (self.state == State::waiting) {
    --waiting_;
    if (self.wake != 0) --to_be_woken_;
  }
  if (self.state == State::ready) ready_.erase(std::find(ready_.begin(), ready_.end(), rank));
  self.wake = 0;
  self.state = State::parked;
}

void Scheduler::call(Time at, std::function<void()> act) {
  events_.push({at, ++events_made_, -1, std::move(act)});
}

}  // namespace lockstep::sim
