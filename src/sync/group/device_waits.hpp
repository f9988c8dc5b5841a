// How a rank waits for its GPU, so that a GPU that hangs or fails is told from one that waits for those of the others.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <lockstep/core/device/stream.hpp>

#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/device/device.hpp"
#include "core/device/host_wait.hpp"
#include "core/device/poll_clock.hpp"
#include "sync/group/replica_group.hpp"

namespace lockstep::detail {

/// A GPU meets the others in collectives that it makes by itself, in the order in which the host has enqueued them. For
/// each there are two events on the compute stream: the GPU has come to it, and the GPU is through. A host that waits
/// looks for the first event that has not happened. If it is the first of its two, the GPU works for this rank alone,
/// and after the stall timeout this rank has stalled. If it is the second, the GPU waits for the others: the phase
/// table says so, and the watchdogs find the rank that is late; if none does, the collective itself has stalled, and no
/// rank is to blame, unless one has shown progress in that time (progress_count.hpp).
///
/// A process has one GPU, and one of these for all of its groups: the collectives of all are enqueued in one order.
class DeviceWaits final : public HostWait {
 public:
  /// Called when this rank cannot meet the others any more, with what it says last. Must not return.
  using EndJob = std::function<void(std::exception_ptr)>;

  /// `name` is that of the device. For the thread that makes it and its runs; others may wait for the device as well.
  /// `all` is where all ranks meet, and as good as added. It, `compute` and `clock` must outlive it.
  DeviceWaits(MeetingPoint& all, Stream& compute, std::string name, detail::DevicePatience patience, EndJob end_job,
              std::shared_ptr<PollClock> clock = make_poll_clock());
  ~DeviceWaits() override;

  /// LOCAL. From here on each agreement at `meeting` comes after the collectives so far.
  void add(MeetingPoint& meeting);

  /// LOCAL. Forgets `meeting`, and the collectives of its ranks.
  void remove(MeetingPoint& meeting);

  /// COLL over the ranks that meet at `meeting`, which was added. Calls `enqueue`, which enqueues a collective of their
  /// GPUs, or makes the compute stream wait for one. Rethrows what it throws.
  void enqueue_collective(MeetingPoint& meeting, const std::function<void()>& enqueue);

  /// LOCAL, blocking. Waits for the collectives so far. If the GPU fails meanwhile, the job ends: the others wait for
  /// it in one of them.
  void settle();

  void until(const std::function<bool()>& done) override;

 private:
  struct Collective {
    std::unique_ptr<Event> reached;  ///< null once it has happened
    std::unique_ptr<Event> passed;
    MeetingPoint* meeting;
    MeetingPoint::LaterWait wait;
  };

  void advance();
  const Collective* with_others() const;
  void poll(const std::function<bool()>& done);
  std::string own_work() const;
  std::string collective(const Tag& tag) const;
  template <class Stall>
  void stall(const std::string& sentence);

  MeetingPoint& all_;
  Stream& compute_;
  std::string name_;
  detail::DevicePatience patience_;
  EndJob end_job_;
  std::shared_ptr<PollClock> clock_;
  std::deque<Collective> collectives_;  ///< that the GPU is not through, as far as is known
  std::thread::id thread_ = std::this_thread::get_id();
  WaitOfProcess use_{*this};
};

}  // namespace lockstep::detail
