// A simulated job: its ranks, its faults, and how it ends, in place of mpirun, the phase table and the watchdogs.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <lockstep/job/sim/sim.hpp>

#include "core/cluster/rank_map.hpp"
#include "core/control/job.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"
#include "core/control/shared_table.hpp"
#include "job/sim/network.hpp"
#include "job/sim/plane.hpp"
#include "job/sim/scheduler.hpp"
#include "job/sim/virtual_time.hpp"

namespace lockstep::sim {

class Job final : private Scheduler::Overseer {
 public:
  /// InvalidArgument for invalid options. `network` may be null, or outlives this object.
  Job(Options options, std::function<void(Strategy&, int)> body, Network* network = nullptr);

  /// Runs the job, and throws what it failed with.
  void run();

  /// The following are for rank `rank`, which runs. Each throws what the job ended with, once it has ended.

  /// A scheduling point.
  void point(int rank, std::string_view what);
  /// A scheduling point that ends after a `wake`.
  void wait(int rank, std::string_view what);
  void sleep(int rank, Time length);
  /// A scheduling point that ends when something has come that this rank has started, and does not wait for.
  void wait_for_news(int rank);

  /// Something comes to `rank` at that time.
  void tell_news(int rank, Time at);

  void wake(int rank, Time at) { scheduler_.wake(rank, at); }
  Time now() const { return scheduler_.now(); }
  std::uint64_t points(int rank) const { return of(rank).points; }
  Time draw_latency();
  Network* network() const { return network_; }
  std::string name(int rank) const { return names_[rank]; }
  std::uint64_t seed() const { return options_.seed; }

  /// The plane of `members`, which split off from `from` under this key.
  Plane& split(const Plane& from, std::uint64_t key, const std::vector<int>& members);

  /// `rank` begins a collective of that plane, or ends its part in it.
  void enter(int rank, const Plane& plane);
  void exit(int rank, const Plane& plane);

  /// Whether a rank is on its way out: its job is over, or the rank was parked.
  bool is_leaving(int rank) const { return over_ || scheduler_.is_unwinding(rank); }

  /// Ends the job with the same exception for every rank, and throws it.
  template <class E>
  [[noreturn]] void end(E error) {
    end_for_all(std::move(error));
    std::rethrow_exception(over_->exception);
  }

  /// Ends the job, unless it is over, because of an exception that only `rank` knows of, and throws what it ended with.
  [[noreturn]] void end_by(int rank, const std::exception_ptr& exception);

 private:
  struct Rank {
    std::uint64_t points = 0;
    std::optional<Time> meets_since;  ///< set while it waits in an agreement or a covered sum
    Time met{0};                      ///< when it last began to
    std::vector<Time> news;           ///< when something comes that it has not looked for
    bool waits_for_news = false;
    std::uint64_t waits_at = 0;  ///< the number at which it waits for news, and since when
    Time waits_since{0};
    std::vector<const Plane*> inside;    ///< the planes of the collectives in which it is
    const lockstep::Job* job = nullptr;  ///< null before it exists, and after
    std::exception_ptr outcome;          ///< the first exception that left `body` or the end of the job
  };

  /// A fault that took effect.
  struct Blow {
    Options::Fault fault;
    Time noticed;
    std::string was;  ///< what the rank was doing: "was in step 5, waiting at merge_call #1 (trainer.cpp:120)"
  };

  struct End {
    std::exception_ptr exception = nullptr;
    std::exception_ptr for_others = nullptr;  ///< set if only `culprit` throws `exception`
    int culprit = -1;
    std::string text = {};
  };

  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  void play(int rank);
  void take_part(int rank);
  void fail(int rank, const std::exception_ptr& exception);
  void after(int rank, const std::exception_ptr& exception);
  void pass(int rank);
  void throw_if_over(int rank) const;
  [[noreturn]] void throw_end(int rank) const;
  void strike(const Options::Fault& fault);
  void notice(const Blow& blow);
  void end(End end);
  template <class E>
  void end_for_all(E error) {
    std::string text = error.what();
    end({std::make_exception_ptr(std::move(error)), {}, -1, std::move(text)});
  }
  void trace(std::string_view line) const;
  void trace(int rank, std::string_view what) const;

  void before(Time next) override;
  void stuck() override;

  /// "is at merge_call #1" if it is one rank, "have finished the job" if there are several.
  struct Where {
    bool has_done;
    std::string what;
    bool operator==(const Where&) const = default;
  };

  const MeetingPoint* meeting_of(int rank) const;
  const std::string& inside(const Plane& plane, int rank) const;
  bool is_meeting(int rank) const { return !inside(control_, rank).empty(); }
  PhaseTable::Snapshot snapshot(int rank) const;
  std::string why_late(int waiting, int late) const;
  Where where_is(int rank) const;
  std::string who_is_where() const;

  Options options_;
  std::function<void(Strategy&, int)> body_;
  Network* network_;
  RankMap tasks_;
  TableOnDemand<std::string> names_;
  TableOnDemand<lockstep::Job::Residence> residences_;
  SharedTable<int> nodes_;
  std::vector<Rank> ranks_;
  std::vector<Blow> blows_;
  std::optional<End> over_;
  std::optional<AgreedFailure> agreed_;  ///< the first that left `body` on a rank
  Scheduler scheduler_;
  Plane control_, data_;
  std::map<std::tuple<const Plane*, std::uint64_t, std::vector<int>>, Plane> splits_;
};

/// Makes this thread a rank of `job` for as long as it lives.
class Current {
 public:
  Current(Job& job, int rank);
  Current(const Current&) = delete;
  ~Current();

  Job& job;
  const int rank;
};

}  // namespace lockstep::sim
