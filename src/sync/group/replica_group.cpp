#include "sync/group/replica_group.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/log_settings.hpp"
#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/channel.hpp"
#include "core/control/job.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/device/pinned_pool.hpp"
#include "sync/group/device_waits.hpp"
#include "sync/group/local_group.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

/// How the groups of this process use its GPU.
struct ReplicaGroup::Gpu {
  std::unique_ptr<Stream> compute;
  detail::DeviceWaits waits;
  detail::MakeDevicePlane make_plane;
  detail::PinnedPool pinned{*compute};
};

ReplicaGroup::ReplicaGroup(std::shared_ptr<Job> job, std::unique_ptr<Communicator> data)
    : ReplicaGroup{job, Job::Meeting{nullptr, {}}, all_ranks(job->size()), std::move(data)} {}

ReplicaGroup::ReplicaGroup(std::shared_ptr<Job> job, Job::Meeting own_meeting, std::vector<int> ranks,
                           std::unique_ptr<Communicator> data)
    : job_{std::move(job)},
      own_meeting_{std::move(own_meeting)},
      meeting_{own_meeting_ ? own_meeting_.get() : &job_->meeting()},
      data_{std::move(data)},
      ranks_{std::move(ranks)},
      node_of_rank_{own_meeting_ ? job_->node_of_rank().of(ranks_) : job_->node_of_rank()},
      residences_{own_meeting_ ? job_->residences().of(ranks_) : job_->residences()},
      requests_{*job_, *meeting_, *data_} {}

std::unique_ptr<ReplicaGroup> ReplicaGroup::subset(std::span<const int> ranks, Here here, Tag::Site site) {
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
  Job::Meeting meeting = job_->make_meeting(of_job, here);
  // Before they make the plane for their data from that of this group.
  meeting->agree(TagKind::group, 0, here,
                 fmt::format("ranks {}{}", fmt::join(ranks, ", "),
                             own_meeting_ ? fmt::format(" of replicas {}", fmt::join(ranks_, ", ")) : ""),
                 {.site = site});
  std::unique_ptr<Communicator> data;
  job_->complete_or_abort(
      [&] { meeting->agreed_region().wait_in([&] { data = data_->subset(ranks, meeting->members().key); }); });
  std::unique_ptr<ReplicaGroup> group{new ReplicaGroup{job_, std::move(meeting), std::move(of_job), std::move(data)}};
  group->name_device_ = name_device_;
  if (gpu_) group->join_on_gpus(*this, here);
  return group;
}

/// What fails on one rank fails on all.
void ReplicaGroup::join_on_gpus(const ReplicaGroup& all, const Here& here) {
  // NCCL starts on the stream of all collectives: a rank that is late for one of these is named as such.
  all.gpu_->waits.settle();
  detail::announcing_failure(*meeting_, here, [&] {
    auto data = size() == 1 ? make_local_communicator(*all.gpu_->compute) : all.gpu_->make_plane(*data_);
    gpu_ = all.gpu_;
    gpu_->waits.add(*meeting_);
    if (data) use_plane(std::move(data));
  });
  meeting_->agree(TagKind::group, 0, here, "on GPUs");
}

int ReplicaGroup::rank() const {
  return data_->rank();
}
int ReplicaGroup::size() const {
  return data_->size();
}

int ReplicaGroup::ranks_of_node() const {
  return static_cast<int>(std::ranges::count(node_of_rank(), node()));
}

void ReplicaGroup::add_device_plane(std::unique_ptr<Stream> compute, std::unique_ptr<Communicator> data,
                                    detail::DevicePatience patience, detail::MakeDevicePlane make) {
  Stream& stream = *compute;
  auto end_job = [job = job_](std::exception_ptr exception) { job->end(std::move(exception)); };
  gpu_.reset(new Gpu{std::move(compute),
                     {meeting(), stream, device_name(), std::move(patience), std::move(end_job)},
                     std::move(make)});
  use_plane(std::move(data));
}

void ReplicaGroup::use_plane(std::unique_ptr<Communicator> data) {
  device_data_ = std::move(data);
  given_up_.emplace(*job_, [this] { device_data_->abort(); });
}

std::unique_ptr<Reductions> ReplicaGroup::make_reductions(const ReductionOptions& options) {
  // A collective whose failure ends the job, inside what the program has put around it. Who waits for a GPU knows of
  // those that are on it.
  auto* const gpu = size() > 1 ? gpu_.get() : nullptr;
  Reductions::Seam seam;
  if (gpu || options.around)
    seam = [this, gpu, around = options.around](DeviceKind device, const std::function<void()>& part) {
      const auto known = [&] {
        gpu&& device == DeviceKind::cuda ? gpu->waits.enqueue_collective(*meeting_, part) : part();
      };
      around ? around(known) : known();
    };
  auto made = std::make_unique<Reductions>(Reductions::Planes{*data_, device_data_.get()}, options, node_of_rank(),
                                           std::move(seam), reductions_made_++, job_.get());
  // A rank alone reduces nothing, and every process has such a group for the default strategy.
  if (rank() == 0 && size() > 1) log::debug(fmt::format("{}: {}", describe(options), made->name()));
  return made;
}

Reductions& ReplicaGroup::reductions() {
  if (!reductions_) job_->complete_or_abort([this] { reductions_ = make_reductions({}); });
  return *reductions_;
}

Stream& ReplicaGroup::stream() {
  return gpu_ ? *gpu_->compute : Stream::host();
}

detail::PinnedPool* ReplicaGroup::pinned() {
  return gpu_ ? &gpu_->pinned : nullptr;
}

ReplicaGroup::~ReplicaGroup() {
  if (!gpu_ || !own_meeting_) return;
  // The communicator gives up what does not end within seconds. All ranks of a job wait longer, before they leave it.
  if (!job_->has_failed()) gpu_->waits.settle();
  gpu_->waits.remove(*meeting_);
}

std::unique_ptr<ReplicaGroup> make_local_group() {
  return std::make_unique<ReplicaGroup>(
      std::make_shared<Job>(make_local_channel(), std::vector<std::string>{"replica 0"}), make_local_communicator());
}

}  // namespace lockstep
