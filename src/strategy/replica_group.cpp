#include "strategy/replica_group.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/log.hpp>

#include "base/log_settings.hpp"
#include "comm/backends.hpp"
#include "comm/communicator.hpp"
#include "control/busy_clock.hpp"
#include "control/channel.hpp"
#include "control/meeting_point.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/implementations.hpp"
#include "reduce/reduction_choice.hpp"
#include "reduce/slice_map.hpp"
#include "strategy/device_waits.hpp"
#include "strategy/local_group.hpp"

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
  GuardedOps(std::unique_ptr<CrossDeviceOps> ops, ReductionOptions::AroundCollective around,
             ReplicaGroup::EndJob end_job, detail::DeviceWaits* gpu)
      : ops_{std::move(ops)}, around_{std::move(around)}, end_job_{std::move(end_job)}, gpu_{gpu} {}

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
    try {
      around_ ? around_(known) : known();
    } catch (...) {
      end_job_(std::current_exception());
    }
  }

  std::unique_ptr<CrossDeviceOps> ops_;
  ReductionOptions::AroundCollective around_;
  ReplicaGroup::EndJob end_job_;
  detail::DeviceWaits* gpu_;
};

// std::terminate with the exception in flight, so that the handler can say what it was.
void terminate_with(std::exception_ptr exception) noexcept {
  std::rethrow_exception(std::move(exception));
}

}  // namespace

ReplicaGroup::ReplicaGroup(std::unique_ptr<Communicator> data, std::unique_ptr<ControlChannel> control,
                           std::vector<std::string> replica_names, EndJob end_job)
    : data_{std::move(data)},
      device_names_(static_cast<std::size_t>(data_->size()), "/device:CPU:0"),
      meeting_{std::make_unique<MeetingPoint>(std::move(control), std::move(replica_names))},
      end_job_{end_job ? std::move(end_job) : EndJob{terminate_with}},
      node_of_rank_(static_cast<std::size_t>(data_->size()), 0) {
  for (int rank = 0; rank < data_->size(); ++rank) residences_.push_back({fmt::format("replica {}", rank), {}});
}

void ReplicaGroup::set_nodes(std::vector<int> node_of_rank) {
  node_of_rank_ = std::move(node_of_rank);
}

int ReplicaGroup::ranks_of_node() const {
  return static_cast<int>(std::ranges::count(node_of_rank_, node_of_rank_[static_cast<std::size_t>(rank())]));
}

void ReplicaGroup::add_device_plane(std::unique_ptr<Stream> compute, std::unique_ptr<Communicator> data,
                                    detail::DevicePatience patience) {
  compute_ = std::move(compute);
  device_data_ = std::move(data);
  to_abort_ = device_data_.get();
  device_waits_ =
      std::make_unique<detail::DeviceWaits>(*meeting_, *compute_, device_name(), std::move(patience),
                                            [this](std::exception_ptr exception) { end_job(std::move(exception)); });
}

void ReplicaGroup::end_job(std::exception_ptr exception) {
  failed_ = true;
  end_job_(std::move(exception));
}

void ReplicaGroup::see_through(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    end_job(std::current_exception());
  }
}

std::unique_ptr<CrossDeviceOps> ReplicaGroup::make_reductions(const ReductionOptions& options) {
  auto ops = make_cross_device_ops(*data_, options, node_of_rank_);
  if (device_data_)
    ops = make_ops_by_device(std::move(ops), make_cross_device_ops(*device_data_, options, node_of_rank_));
  // A rank alone reduces nothing, and every process has such a group for the default strategy.
  if (rank() == 0 && size() > 1) log::debug(fmt::format("{}: {}", describe(options), ops->name()));
  return std::make_unique<GuardedOps>(
      std::move(ops), options.around, [this](std::exception_ptr exception) { end_job(std::move(exception)); },
      size() > 1 ? device_waits_.get() : nullptr);
}

void ReplicaGroup::abort() noexcept {
  if (Communicator* const communicator = to_abort_.exchange(nullptr)) communicator->abort();
}

ReplicaGroup::~ReplicaGroup() = default;

int ReplicaGroup::rank() const {
  return data_->rank();
}
int ReplicaGroup::size() const {
  return data_->size();
}

std::unique_ptr<ReplicaGroup> make_local_group() {
  return std::make_unique<ReplicaGroup>(make_local_communicator(), make_local_channel(),
                                        std::vector<std::string>{"replica 0"});
}

}  // namespace lockstep
