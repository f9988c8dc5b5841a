// What a process's strategies are built on: the ranks they span, how those meet, and how their tensors are reduced.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/reduce/reduction_options.hpp>

#include "control/busy_clock.hpp"

namespace lockstep {

class Communicator;
class ControlChannel;
class CrossDeviceOps;
class MeetingPoint;

namespace detail {

class DeviceWaits;

/// How long the host waits for its GPU.
struct DevicePatience {
  std::chrono::duration<double> stall_timeout{60};
  /// If set, a stall does not end the job with a StallError. This is called with its sentence, once for each stall, and
  /// the host keeps waiting.
  std::function<void(const std::string& sentence)> on_stall = {};
};

}  // namespace detail

/// One per process (one per simulated rank). Owns both planes; must outlive every strategy made on it.
class ReplicaGroup {
 public:
  /// Called when a data collective fails on this rank. The others are inside it and cannot be told, so this must end
  /// the job. Must not return.
  using EndJob = std::function<void(std::exception_ptr)>;

  /// An empty `end_job` stands for std::terminate.
  ReplicaGroup(std::unique_ptr<Communicator> data, std::unique_ptr<ControlChannel> control,
               std::vector<std::string> replica_names, EndJob end_job = {});
  ~ReplicaGroup();

  /// LOCAL, before the first strategy is made. `node_of_rank` holds the same number for ranks of one node. Without it,
  /// all ranks are on one node.
  void set_nodes(std::vector<int> node_of_rank);

  /// Of each rank: the same number for ranks of one node.
  std::span<const int> node_of_rank() const { return node_of_rank_; }

  /// The number of ranks on this rank's node.
  int ranks_of_node() const;

  /// Equal on ranks of one node.
  int node() const { return node_of_rank_[static_cast<std::size_t>(rank())]; }

  /// LOCAL, at most once, before the first strategy is made. Adds the plane for GPU memory: the same ranks in the same
  /// order. `compute` is the stream of `data`. From then on variables live in the memory of that GPU, and every wait of
  /// the host for it has a limit: a GPU that does not end its work in time ends the job with a StallError.
  void add_device_plane(std::unique_ptr<Stream> compute, std::unique_ptr<Communicator> data,
                        detail::DevicePatience patience = {});

  /// LOCAL, before the first strategy is made. One name for each replica; without it, all are "/device:CPU:0".
  void set_device_names(std::vector<std::string> names) { device_names_ = std::move(names); }
  const std::vector<std::string>& device_names() const { return device_names_; }

  /// The name of this rank's device.
  const std::string& device_name() const { return device_names_[static_cast<std::size_t>(rank())]; }

  /// Where a replica runs, as reports name it.
  struct Residence {
    std::string task;  ///< "worker:1"; "replica 1" if it has none
    std::string host;  ///< empty if unknown
  };

  /// LOCAL. One for each replica. Without it, they have neither task nor host.
  void set_residences(std::vector<Residence> residences) { residences_ = std::move(residences); }
  const std::vector<Residence>& residences() const { return residences_; }

  /// LOCAL. How the ranks measure time, if it is not real.
  void set_time(BusyClock::TimeSource time) { time_ = std::move(time); }
  const BusyClock::TimeSource& time() const { return time_; }

  /// LOCAL, before the first strategy is made. For ranks that are threads which take turns: none starts another.
  void forbid_threads() { may_start_threads_ = false; }
  bool may_start_threads() const { return may_start_threads_; }

  int rank() const;
  int size() const;

  /// The control plane: every agreement of the process.
  MeetingPoint& meeting() { return *meeting_; }

  /// COLL. Makes a strategy's reductions, on both planes. The reductions never throw: a failure ends the job.
  /// InvalidArgument for invalid options (ReductionOptions).
  std::unique_ptr<CrossDeviceOps> make_reductions(const ReductionOptions& options);

  /// The data plane for host memory.
  Communicator& host_plane() { return *data_; }

  /// The stream for this rank's work: that of its GPU, else the host's.
  Stream& stream() { return compute_ ? *compute_ : Stream::host(); }

  /// LOCAL. Calls `body`, in which this rank does what the others wait for. If it fails, that ends the job: the others
  /// cannot be told.
  void see_through(const std::function<void()>& body);

  /// LOCAL. Whether a data collective has failed on this rank, which then cannot meet the others any more.
  bool has_failed() const { return failed_; }

  /// LOCAL, from any thread, when the job is about to end. Gives up collectives on GPU memory, which may never end.
  void abort() noexcept;

  /// Numbers the strategies of the process in order of creation, which is the same on every rank.
  int next_strategy() { return strategies_++; }

 private:
  void end_job(std::exception_ptr exception);

  std::unique_ptr<Communicator> data_;
  std::vector<std::string> device_names_;
  std::vector<Residence> residences_;
  BusyClock::TimeSource time_;
  std::unique_ptr<MeetingPoint> meeting_;
  EndJob end_job_;
  std::vector<int> node_of_rank_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<Communicator> device_data_;
  std::unique_ptr<detail::DeviceWaits> device_waits_;  ///< null without a device plane
  std::atomic<Communicator*> to_abort_ = nullptr;
  std::atomic<bool> failed_ = false;
  int strategies_ = 0;
  bool may_start_threads_ = true;
};

}  // namespace lockstep
