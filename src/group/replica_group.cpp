#include "group/replica_group.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>

#include "base/log_settings.hpp"
#include "comm/backends.hpp"
#include "comm/communicator.hpp"
#include "control/busy_clock.hpp"
#include "control/channel.hpp"
#include "control/job.hpp"
#include "control/meeting_point.hpp"
#include "control/tag.hpp"
#include "group/device_waits.hpp"
#include "group/local_group.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/implementations.hpp"
#include "reduce/reduction_choice.hpp"
#include "reduce/slice_map.hpp"

namespace lockstep {
namespace {

bool is_on_gpu(const TensorView& tensor) {
  return tensor.device() == DeviceKind::cuda;
}
bool is_on_gpu(const Tensor& tensor) {
  return tensor.device() == DeviceKind::cuda;
}
bool is_on_gpu(const IndexedSlices& slices) {
  return is_on_gpu(slices.values);
}
bool is_on_gpu(const Sliced& message) {
  return is_on_gpu(message.memory);
}

/// Reductions whose failure ends the job, inside what the program has put around them. Those on a GPU are known to who
/// waits for it.
class GuardedOps final : public CrossDeviceOps {
 public:
  GuardedOps(std::unique_ptr<CrossDeviceOps> ops, ReductionOptions::AroundCollective around, Job& job,
             detail::DeviceWaits* gpu)
      : ops_{std::move(ops)}, around_{std::move(around)}, job_{job}, gpu_{gpu} {}

  std::string_view name() const override { return ops_->name(); }
  const Packing& packing() const override { return ops_->packing(); }
  std::int64_t enough_bytes() const override { return ops_->enough_bytes(); }
  std::optional<DType> gradient_compression() const override { return ops_->gradient_compression(); }
  Work start(const TensorView& message) override {
    return guarded(waits_for(std::span{&message, 1}), [this, message] { return ops_->start(message); });
  }
  Work start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    return guarded(waits_for(tensors), [this, op, all = std::vector(tensors.begin(), tensors.end())] {
      return ops_->start_all_reduce(op, all);
    });
  }
  std::vector<int> slice_owners() const override { return ops_->slice_owners(); }
  Work start_scatter(const Sliced& message) override {
    return guarded(waits_for(std::span{&message.memory, 1}), [this, message] { return ops_->start_scatter(message); });
  }
  void gather_slices(std::span<const Sliced> messages) override {
    guard(waits_for(messages), [&] { ops_->gather_slices(messages); });
  }
  SharedAllocation allocate_shared(std::size_t bytes) override { return ops_->allocate_shared(bytes); }
  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    guard(waits_for(tensors), [&] { ops_->all_reduce(op, tensors); });
  }
  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override {
    guard(waits_for(tensors), [&] { ops_->reduce_to_one(op, tensors, root); });
  }
  void broadcast(std::span<const TensorView> tensors, int root) override {
    guard(waits_for(tensors), [&] { ops_->broadcast(tensors, root); });
  }
  void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) override {
    guard(waits_for(slices), [&] { ops_->all_reduce(op, slices); });
  }
  void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) override {
    guard(waits_for(slices), [&] { ops_->reduce_to_one(op, slices, root); });
  }
  void broadcast(std::span<IndexedSlices> slices, int root) override {
    guard(waits_for(slices), [&] { ops_->broadcast(slices, root); });
  }
  void all_gather(std::span<Tensor> tensors) override {
    guard(waits_for(tensors), [&] { ops_->all_gather(tensors); });
  }

 private:
  /// Null for operands on the host.
  template <class T>
  detail::DeviceWaits* waits_for(std::span<T> operands) const {
    return gpu_ && std::ranges::any_of(operands, [](const T& each) { return is_on_gpu(each); }) ? gpu_ : nullptr;
  }

  /// What `start` starts.
  template <class Start>
  Work guarded(detail::DeviceWaits* gpu, Start start) {
    // What the program measures begins with the start and ends with the wait.
    if (around_) return Work::later([this, gpu, start] { guard(gpu, [&] { start().wait(); }); });
    struct Guarded final : Work::Pending {
      Guarded(GuardedOps& its_ops, detail::DeviceWaits* its_gpu) : ops{its_ops}, gpu{its_gpu} {}
      void wait() override {
        ops.guard(gpu, [&] { work.wait(); });
      }
      bool advance() override {
        bool done = false;
        ops.run(nullptr, [&] { done = work.advance(); });
        return done;
      }
      Work::Traffic traffic() const override { return work.traffic(); }
      GuardedOps& ops;
      detail::DeviceWaits* gpu;
      Work work = Work::done();
    };
    auto guarded = std::make_unique<Guarded>(*this, gpu);
    run(gpu, [&] { guarded->work = start(); });
    return Work{std::move(guarded)};
  }

  template <class Collective>
  void guard(detail::DeviceWaits* gpu, Collective&& collective) {
    const BusyClock::Waiting waiting;
    run(gpu, collective);
  }

  template <class Collective>
  void run(detail::DeviceWaits* gpu, Collective&& collective) {
    const auto known = [&] { gpu ? gpu->enqueue_collective(collective) : collective(); };
    job_.see_through([&] { around_ ? around_(known) : known(); });
  }

  std::unique_ptr<CrossDeviceOps> ops_;
  ReductionOptions::AroundCollective around_;
  Job& job_;
  detail::DeviceWaits* gpu_;
};

std::vector<int> all_ranks(int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

ReplicaGroup::ReplicaGroup(std::shared_ptr<Job> job, std::unique_ptr<Communicator> data)
    : ReplicaGroup{job, Job::Meeting{nullptr, {}}, all_ranks(job->size()), std::move(data)} {}

ReplicaGroup::ReplicaGroup(std::shared_ptr<Job> job, Job::Meeting own_meeting, std::vector<int> ranks,
                           std::unique_ptr<Communicator> data)
    : job_{std::move(job)},
      own_meeting_{std::move(own_meeting)},
      meeting_{own_meeting_ ? own_meeting_.get() : &job_->meeting()},
      data_{std::move(data)},
      ranks_{std::move(ranks)},
      device_names_(ranks_.size(), "/device:CPU:0"),
      requests_{*job_, *meeting_, *data_} {
  for (const int rank : ranks_) {
    node_of_rank_.push_back(job_->node_of_rank()[static_cast<std::size_t>(rank)]);
    residences_.push_back(job_->residences()[static_cast<std::size_t>(rank)]);
  }
}

std::unique_ptr<ReplicaGroup> ReplicaGroup::subset(std::span<const int> ranks, Here here) {
  std::vector<int> of_job;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size() || std::ranges::count(ranks, rank) > 1)
      throw InvalidArgument{
          fmt::format("a group of ranks {}: expected each once, and of 0 to {}", fmt::join(ranks, ", "), size() - 1)};
    of_job.push_back(ranks_[static_cast<std::size_t>(rank)]);
  }
  if (std::ranges::count(ranks, rank()) == 0)
    throw InvalidArgument{
        fmt::format("a group of ranks {} on rank {}: expected it among them", fmt::join(ranks, ", "), rank())};
  if (compute_) throw InvalidArgument{"a group of some of the ranks that own GPUs: expected ranks on the host"};
  Job::Meeting meeting = job_->make_meeting(of_job, here);
  // Before they make the plane for their data from that of this group.
  meeting->agree(TagKind::group, 0, here,
                 fmt::format("ranks {}{}", fmt::join(ranks, ", "),
                             own_meeting_ ? fmt::format(" of replicas {}", fmt::join(ranks_, ", ")) : ""));
  std::unique_ptr<Communicator> data;
  job_->see_through([&] { meeting->cover().wait_in([&] { data = data_->subset(ranks, meeting->members().key); }); });
  std::unique_ptr<ReplicaGroup> group{new ReplicaGroup{job_, std::move(meeting), std::move(of_job), std::move(data)}};
  for (std::size_t i = 0; i < ranks.size(); ++i)
    group->device_names_[i] = device_names_[static_cast<std::size_t>(ranks[i])];
  return group;
}

int ReplicaGroup::rank() const {
  return data_->rank();
}
int ReplicaGroup::size() const {
  return data_->size();
}

int ReplicaGroup::ranks_of_node() const {
  return static_cast<int>(std::ranges::count(node_of_rank_, node()));
}

void ReplicaGroup::add_device_plane(std::unique_ptr<Stream> compute, std::unique_ptr<Communicator> data,
                                    detail::DevicePatience patience) {
  compute_ = std::move(compute);
  device_data_ = std::move(data);
  given_up_.emplace(*job_, [this] { device_data_->abort(); });
  device_waits_ =
      std::make_unique<detail::DeviceWaits>(meeting(), *compute_, device_name(), std::move(patience),
                                            [this](std::exception_ptr exception) { job_->end(std::move(exception)); });
}

std::unique_ptr<CrossDeviceOps> ReplicaGroup::make_reductions(const ReductionOptions& options) {
  auto ops = make_cross_device_ops(*data_, options, node_of_rank_);
  if (device_data_)
    ops = make_ops_by_device(std::move(ops), make_cross_device_ops(*device_data_, options, node_of_rank_));
  // A rank alone reduces nothing, and every process has such a group for the default strategy.
  if (rank() == 0 && size() > 1) log::debug(fmt::format("{}: {}", describe(options), ops->name()));
  return std::make_unique<GuardedOps>(std::move(ops), options.around, *job_,
                                      size() > 1 ? device_waits_.get() : nullptr);
}

CrossDeviceOps& ReplicaGroup::reductions() {
  if (!reductions_) job_->see_through([this] { reductions_ = make_reductions({}); });
  return *reductions_;
}

ReplicaGroup::~ReplicaGroup() = default;

std::unique_ptr<ReplicaGroup> make_local_group() {
  return std::make_unique<ReplicaGroup>(
      std::make_shared<Job>(make_local_channel(), std::vector<std::string>{"replica 0"}), make_local_communicator());
}

}  // namespace lockstep
