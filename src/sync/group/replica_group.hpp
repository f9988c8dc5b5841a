// What strategies are built on: the ranks that they span, and how their tensors are reduced.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>

#include "core/control/job.hpp"
#include "core/control/shared_table.hpp"
#include "core/control/tag.hpp"
#include "sync/group/request_queue.hpp"

namespace lockstep {

class Communicator;
class Reductions;

namespace detail {

class PinnedPool;

/// How long the host waits for its GPU.
struct DevicePatience {
  std::chrono::duration<double> stall_timeout{60};
  /// If set, a stall does not end the job with a StallError. This is called with its sentence, once for each stall, and
  /// the host keeps waiting.
  std::function<void(const std::string& sentence)> on_stall = {};
};

/// COLL over the ranks of `host`. Makes their plane for GPU memory. Null where another rank fails, which throws.
using MakeDevicePlane = std::function<std::unique_ptr<Communicator>(Communicator& host)>;

}  // namespace detail

/// Ranks of a job that work together: all of them, or some in an order of their own. They have a sequence of
/// agreements, and planes that move their tensors. A process may be in several groups; all ranks make and
/// free theirs, and block in them, in one common order; requests need no such order. A data collective that fails on
/// this rank ends the job: the others are inside it and cannot be told. Must outlive every strategy made on it.
class ReplicaGroup {
 public:
  /// All ranks of `job`, which know each other by now. `data` is their plane for host memory, in the same order.
  ReplicaGroup(std::shared_ptr<Job> job, std::unique_ptr<Communicator> data);
  ReplicaGroup(const ReplicaGroup&) = delete;
  ~ReplicaGroup();

  /// COLL over `ranks`, blocking. Makes a group of these ranks of this one, in that order. InvalidArgument, before any
  /// communication, unless each is a rank of this group, each is named once, and this rank is among them.
  std::unique_ptr<ReplicaGroup> subset(std::span<const int> ranks, Here here = Here::current(),
                                       Tag::Site site = Tag::Site::compared);

  Job& job() { return *job_; }

  /// The numbers of these ranks in the job, in the order of the group; empty for the job's first group.
  std::span<const int> some_of_job() const {
    return own_meeting_ ? std::span<const int>{ranks_} : std::span<const int>{};
  }

  int rank() const;
  int size() const;

  /// The control plane: every agreement of these ranks.
  MeetingPoint& meeting() { return *meeting_; }

  /// Of each rank: the same number for ranks of one node.
  std::span<const int> node_of_rank() const { return node_of_rank_.all(); }

  /// That of this rank.
  int node() const { return node_of_rank_[rank()]; }

  /// How many of these ranks are on this rank's node.
  int ranks_of_node() const;

  /// Where each rank runs.
  std::vector<Job::Residence> residences() const { return residences_.all(); }

  /// LOCAL, at most once, before the first strategy is made. Adds the plane for GPU memory: the same ranks in the same
  /// order. `compute` is the stream of `data`, and of those that `make` makes for groups of some of these ranks. From
  /// then on variables live in the memory of that GPU, and every wait of the host for it has a limit: a GPU that does
  /// not end its work in time ends the job with a StallError.
  void add_device_plane(std::unique_ptr<Stream> compute, std::unique_ptr<Communicator> data,
                        detail::DevicePatience patience = {}, detail::MakeDevicePlane make = {});

  /// LOCAL, before the first strategy is made. Says the name of a rank's device, by the job's number of the rank;
  /// without it, all are "/device:CPU:0". It lives as long as groups of the job.
  using NameDevice = std::function<std::string(int rank)>;
  void set_device_names(NameDevice name_device) { name_device_ = std::move(name_device); }

  /// One for each rank, and that of this rank. They are made at the call: a job of many ranks keeps none.
  std::vector<std::string> device_names() const {
    std::vector<std::string> names;
    for (const int rank : ranks_) names.push_back(name_device_(rank));
    return names;
  }
  std::string device_name() const { return name_device_(ranks_[static_cast<std::size_t>(rank())]); }

  /// COLL. Makes a strategy's reductions, on both planes. The reductions never throw: a failure ends the job.
  /// InvalidArgument for invalid options (ReductionOptions).
  std::unique_ptr<Reductions> make_reductions(const ReductionOptions& options);

  /// The reductions of the group itself. The first call is COLL, as `make_reductions` is.
  Reductions& reductions();

  /// What this group does while the program goes on.
  RequestQueue& requests() { return requests_; }

  /// The data plane for host memory.
  Communicator& host_plane() { return *data_; }

  /// The stream for this rank's work: that of its GPU, else the host's.
  Stream& stream();

  /// For copies between the host and this rank's GPU, of all groups; null if it has none.
  detail::PinnedPool* pinned();

  /// Numbers the strategies of the group in order of creation, which is the same on every rank.
  int next_strategy() { return strategies_++; }

 private:
  struct Gpu;

  /// `ranks` of the job. Without `own_meeting`, they meet where all ranks of the job do.
  ReplicaGroup(std::shared_ptr<Job> job, Job::Meeting own_meeting, std::vector<int> ranks,
               std::unique_ptr<Communicator> data);

  void join_on_gpus(const ReplicaGroup& all, const Here& here);
  void use_plane(std::unique_ptr<Communicator> data);

  std::shared_ptr<Job> job_;
  Job::Meeting own_meeting_;  ///< null where all ranks of the job meet
  MeetingPoint* meeting_;
  std::unique_ptr<Communicator> data_;
  std::vector<int> ranks_;  ///< of the job
  SharedTable<int> node_of_rank_;
  TableOnDemand<Job::Residence> residences_;
  NameDevice name_device_ = [](int) { return std::string{"/device:CPU:0"}; };
  std::shared_ptr<Gpu> gpu_;  ///< that of this rank, for all its groups; null if it has none
  std::unique_ptr<Communicator> device_data_;
  RequestQueue requests_;
  std::unique_ptr<Reductions> reductions_;  ///< null before the first call
  std::uint64_t reductions_made_ = 0;
  std::optional<Job::GivenUp> given_up_;  ///< collectives on GPU memory, which may never end
  int strategies_ = 0;
};

}  // namespace lockstep
