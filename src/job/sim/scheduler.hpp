// Decides who runs, and what time it is. Knows threads, a clock and a seed, but no collectives.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/job/sim/sim.hpp>

#include "job/sim/virtual_time.hpp"

namespace lockstep::sim {

/// Ends a thread whose rank is parked. It is not a std::exception, so nobody catches it by mistake and continues.
struct Unwind {};

/// The thread that holds its baton runs. Each thread waits for its own.
class Baton {
 public:
  void give() {
    const std::lock_guard lock{mutex_};
    here_ = true;
    arrived_.notify_one();
  }
  void take() {
    std::unique_lock lock{mutex_};
    arrived_.wait(lock, [&] { return here_; });
    here_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  bool here_ = false;
};

/// One thread per rank, one of which runs at a time, and calls all methods but `run`. The batons order everything.
class Scheduler {
 public:
  /// Called by the running thread when the ranks cannot continue by themselves.
  class Overseer {
   public:
    virtual ~Overseer() = default;

    /// Called before the clock moves on to `next`, because all ranks wait.
    virtual void before(Time next) = 0;

    /// Called when all ranks wait and nothing to come would wake one. Must park a rank or wake one.
    virtual void stuck() = 0;
  };

  Scheduler(int ranks, std::uint64_t seed, Overseer& overseer);

  /// Calls `body(rank)`, which must throw nothing but Unwind, on every rank. Returns when every thread has ended.
  /// Threads of parked ranks are unwound, one after another, when the others are done. At most once.
  void run(const std::function<void(int rank)>& body);

  /// Uniform in [0, bound).
  std::uint64_t draw(std::uint64_t bound) { return random_.below(bound, drawn_++); }

  Time now() const { return now_; }
  void move_to(Time time) { now_ = std::max(now_, time); }

  /// Lets others run.
  void pause(int rank);
  /// Lets others run until somebody calls `wake`. Throws Unwind if this rank was parked instead.
  void wait(int rank);

  /// Makes `rank`, which waits or is about to, continue at `at`, or now if that is past. Not if it was parked or ended.
  void wake(int rank, Time at);
  /// Makes every rank that waits continue now, and drops all calls to come.
  void wake_all();
  /// Stops `rank` for good.
  void park(int rank);
  /// Neither parked nor ended.
  bool is_live(int rank) const { return of(rank).state != State::parked && of(rank).state != State::ended; }
  bool is_parked(int rank) const { return of(rank).state == State::parked; }
  bool is_unwinding(int rank) const { return of(rank).unwinding; }

  /// Calls `act` when the clock reaches `at`, if it does.
  void call(Time at, std::function<void()> act);

 private:
  enum class State { ready, running, waiting, parked, ended };

  struct Rank {
    State state = State::ready;
    bool unwinding = false;
    std::uint64_t wake = 0;  ///< the event that wakes it; 0 for none
    Baton baton;
    std::thread thread;
  };

  struct Event {
    Time time;
    std::uint64_t order;  ///< from 1, in the order of creation
    int rank;             ///< the rank to wake; -1 for a call
    std::function<void()> act;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };

  Rank& of(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& of(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  void make_ready(int rank);
  void thread_of(int rank, const std::function<void(int)>& body);
  /// Gives up the turn of the thread with this baton, and gets it back some time later.
  void hand_over(Baton& mine);
  /// The baton of the rank to run next.
  Baton& choose();
  bool move_clock();
  void unwind();

  Overseer& overseer_;
  RandomStream random_;
  std::uint64_t drawn_ = 0;
  Time now_{0};
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<int> ready_;
  int waiting_ = 0;
  int to_be_woken_ = 0;  ///< of the ranks that wait, those with an event that wakes them
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t events_made_ = 0;
  Baton outside_;  ///< the baton of the thread that called `run`
};

}  // namespace lockstep::sim
