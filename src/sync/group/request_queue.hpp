// What a group was asked for, and does while its program goes on.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/group/group.hpp>

#include "core/comm/communicator.hpp"
#include "core/comm/exchange_queue.hpp"
#include "core/control/job.hpp"
#include "core/control/request_progress.hpp"
#include "core/control/started_agreements.hpp"
#include "core/control/tag.hpp"
#include "sync/reduce/shared_sums_under_way.hpp"
#include "sync/reduce/sums_under_way.hpp"

namespace lockstep {

/// A call on a group, as its ranks compare it.
struct detail::GroupCall {
  std::string text;  ///< "all_reduce: sum of f32[3]"
  Here here;
  Tag::Site site;
};

/// The requests of one group, on host memory. Each is agreed on before it moves a byte. They begin in the order in
/// which they were submitted, which is the same on every rank; several are under way at a time. What moves them on is
/// RequestProgress: a thread of its own where MPI allows that, and whoever waits for one or asks for it.
class RequestQueue final : private RequestProgress::Source {
 public:
  /// What moves the data of requests, apart from those of the group's other collectives.
  struct Plane {
    std::variant<detail::SharedSumsUnderWay, detail::SumsUnderWay> sums;  ///< the former on a node that shares memory
    ExchangeQueue exchanges;
  };

  /// Begins to move data, and returns what says if they have all been moved. Called when all ranks have agreed, on any
  /// thread. Must not block. A rank alone has no plane, and nothing to wait for.
  using Start = std::function<std::function<bool()>(Plane* plane)>;

  class Request {
   public:
    bool is_done() const { return done_.load(std::memory_order_acquire); }

   private:
    friend class RequestQueue;
    std::shared_ptr<const Agreement> agreement_;
    std::function<bool()> is_ready_;
    Start start_;
    std::function<bool()> is_moved_;
    std::exception_ptr verdict_;
    std::atomic<bool> done_ = false;
  };

  /// COLL. All must outlive this object. `data` is the plane of the ranks that meet at `meeting`.
  RequestQueue(Job& job, MeetingPoint& meeting, Communicator& data);
  RequestQueue(const RequestQueue&) = delete;
  ~RequestQueue();

  /// COLL, but returns at once. The memory that `start` uses must stay alive until it is done. `start` is called once
  /// `is_ready`, which must not block, has returned true; meanwhile those after it wait. ContextError on a thread on
  /// which MPI does not allow calls.
  std::shared_ptr<Request> submit(const detail::GroupCall& call, std::function<bool()> is_ready, Start start);

  /// LOCAL, never blocks, from any thread. Moves all requests of the process on. Whether this one is done; if the ranks
  /// did not agree, throws what MeetingPoint::agree would.
  bool test(const Request& request);

  /// COLL, blocking, from any thread. Returns when it is done; otherwise as `test`. Calls `meanwhile`, if there is one,
  /// again and again; what that throws ends the wait.
  void wait(const Request& request, const std::function<void()>& meanwhile = {});

  /// LOCAL. Leaves all as it is: the job is over, and memory of requests may be gone.
  void abandon() { is_abandoned_ = true; }

 private:
  bool advance() override;
  bool move_on();
  Plane make_plane();
  bool begin_next();
  bool end_moved();
  void end(Request& request);

  Job& job_;
  MeetingPoint& meeting_;
  Communicator& data_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Request>> to_begin_;    ///< under `mutex_`
  std::vector<std::shared_ptr<Request>> under_way_;  ///< used by `advance` alone, as is the plane
  std::optional<Plane> plane_;                       ///< empty before the first
  std::atomic<bool> is_abandoned_ = false;
  RequestProgress::Added added_;
};

}  // namespace lockstep
