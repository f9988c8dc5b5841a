// The ranks that were started together: who they are, where they meet, and how one of them ends the job.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/control/busy_clock.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/request_progress.hpp"

namespace lockstep {

/// A process has one, and a simulated rank too, besides those of a single rank that make_local_group makes. It knows
/// nothing of tensors. What moves them stands on it, and must not outlive it.
class Job {
 public:
  /// Ends the job because of what this rank alone knows. Must not return.
  using End = std::function<void(std::exception_ptr)>;

  /// Where a replica runs, as reports name it.
  struct Residence {
    std::string task;  ///< "worker:1"; "replica 1" if it has none
    std::string host;  ///< empty if unknown
  };

  /// `names[r]` is how messages call rank r. An empty `end` stands for std::terminate.
  Job(std::unique_ptr<ControlChannel> channel, TableOnDemand<std::string> names, End end = {});
  Job(const Job&) = delete;
  ~Job();

  int rank() const { return meeting_->rank(); }
  int size() const { return meeting_->size(); }

  /// Where all ranks meet.
  MeetingPoint& meeting() { return *meeting_; }

  /// Takes a meeting point from the job that made it, which must outlive it.
  struct Forget {
    Job* job;
    void operator()(MeetingPoint* meeting) const;
  };
  using Meeting = std::unique_ptr<MeetingPoint, Forget>;

  /// COLL over `ranks`, blocking. Makes a meeting point of these ranks, in that order, with a sequence of agreements of
  /// its own. This rank is one of them. All ranks come to their calls in one common order.
  Meeting make_meeting(const std::vector<int>& ranks, const Here& here);

  /// What moves on the requests of this process, in whichever group.
  RequestProgress& progress() { return progress_; }

  /// LOCAL. The meeting point of all ranks, then those of groups that still exist, in the order of their making.
  std::span<MeetingPoint* const> meetings() const { return meetings_; }

  /// The meeting point with that key (Members); null if there is none.
  const MeetingPoint* meeting_of(std::uint64_t key) const;

  /// LOCAL. The verdict that this rank threw as `exception`, at any meeting point; null if there is none.
  std::shared_ptr<const AgreedFailure> known(const std::exception_ptr& exception) const;

  /// LOCAL. A verdict after which this rank has met nobody else at the same meeting point or, if that has gone since,
  /// anywhere; null if there is none.
  std::shared_ptr<const AgreedFailure> last_known() const;

  /// LOCAL. This rank meets others again.
  void forget_last_left() { last_left_ = nullptr; }

  /// LOCAL. Where this rank is, as MeetingPoint::place says it.
  std::string place() const;

  /// LOCAL. The table in which this rank shows where it meets; null to stop.
  void set_phases(PhaseTable* phases);

  // LOCAL, while the job starts.

  /// `node_of_rank` holds the same number for ranks of one node. Without it, all ranks are on one node.
  void set_nodes(SharedTable<int> node_of_rank) { node_of_rank_ = std::move(node_of_rank); }

  /// One for each rank. Without it, they have neither task nor host.
  void set_residences(TableOnDemand<Residence> residences) { residences_ = std::move(residences); }

  /// How the ranks measure time, if it is not real.
  void set_time(BusyClock::TimeSource time) { time_ = std::move(time); }

  /// For ranks that are threads which take turns: none starts another.
  void forbid_threads() { may_start_threads_ = false; }

  /// Of each rank: the same number for ranks of one node.
  const SharedTable<int>& node_of_rank() const { return node_of_rank_; }
  const TableOnDemand<Residence>& residences() const { return residences_; }
  const BusyClock::TimeSource& time() const { return time_; }
  bool may_start_threads() const { return may_start_threads_; }

  /// LOCAL. Calls `body`, for which the others wait. If it fails, that ends the job: they cannot be told.
  template <class Body>
  void complete_or_abort(Body&& body) {
    try {
      std::forward<Body>(body)();
    } catch (...) {
      end(std::current_exception());
    }
  }

  /// LOCAL. Ends the job.
  void end(std::exception_ptr exception);

  /// LOCAL. Whether `end` was called: this rank cannot meet the others any more.
  bool has_failed() const { return failed_; }

  /// While this object lives, `abort` calls `give_up`, once, which abandons what may never end when a rank is gone.
  /// `give_up` is called on any thread, and must not throw.
  class [[nodiscard]] GivenUp {
   public:
    GivenUp(Job& job, std::function<void()> give_up);
    GivenUp(const GivenUp&) = delete;
    ~GivenUp();

   private:
    friend class Job;
    Job& job_;
    std::function<void()> give_up_;
  };

  /// LOCAL, from any thread, when the job is about to end.
  void abort() noexcept;

 private:
  RequestProgress progress_;
  std::unique_ptr<MeetingPoint> meeting_;
  std::vector<MeetingPoint*> meetings_;
  std::map<std::vector<int>, std::uint64_t> made_;  ///< how many meeting points this rank has made of these ranks
  std::vector<std::shared_ptr<const AgreedFailure>>
      left_behind_;                                 ///< by meeting points that were forgotten after a verdict
  std::shared_ptr<const AgreedFailure> last_left_;  ///< the first of those since this rank last met others, if any
  PhaseTable* phases_ = nullptr;
  End end_;
  SharedTable<int> node_of_rank_;
  TableOnDemand<Residence> residences_;
  BusyClock::TimeSource time_;
  bool may_start_threads_ = true;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::vector<GivenUp*> given_up_;  ///< under `mutex_`
};

}  // namespace lockstep
