#include "torch/joint_shards.hpp"

#include <algorithm>
#include <optional>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>

#include "core/control/meeting_point.hpp"
#include "sync/reduce/fixed_order_sum.hpp"
#include "sync/strategy/context_stack.hpp"

namespace lockstep::libtorch {
namespace {

/// Calls `visit(name, module)` for all modules of `modules` that are LibTorch's.
template <class Visit>
void for_each_part(const ModuleList& modules, Visit&& visit) {
  for (const ReplicatedModule::Impl* const module : modules)
    if (module->parts.module) for_each_module(*module->parts.module, visit);
}

[[noreturn]] void refuse_stranger() {
  throw ContextError{
      "a SyncBatchNorm in training that is no part of the modules of backward_shards: expected one of theirs, or "
      "eval()"};
}

/// When it ends, the caller has its state again.
struct TakeBack {
  TurnState& state;
  ~TakeBack() { state.take_back(); }
};

/// On a GPU, the stream on which torch computes for this thread.
std::optional<c10::Stream> stream_of_torch(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl{device.type()}.getStream(device);
}

}  // namespace

JointShard::JointShard(JointShards& all, std::size_t index, std::int64_t number)
    : all_{all}, index_{index}, number_{number} {
  std::optional<lockstep::detail::Frame> frame;
  if (const auto* const current = lockstep::detail::current_frame()) frame = *current;
  thread_ = std::make_unique<TurnThread>([this, frame, stream = stream_of_torch(all.device_.device())] {
    const at::ThreadLocalStateGuard as_caller{all_.torch_state_};
    at::init_num_threads();  // torch::set_num_threads holds for a thread, and its libraries go by that
    std::optional<c10::StreamGuard> on_stream;
    if (stream) {
      on_stream.emplace(*stream);
      run_backward_on_this_thread();
    }
    std::optional<lockstep::detail::PushedFrame> pushed;
    if (frame) pushed.emplace(*frame);
    const MeetingPoint::Apart apart{"in a shard of a step with SyncBatchNorm"};
    current_ = this;
    run();
  });
}

JointShard::~JointShard() {
  thread_.reset();
  for (const auto& point : points_)
    if (point) point->open = nullptr;
}

void JointShard::run() {
  all_.work_.forward(index_);
  phase_ = Phase::between;
  thread_->wait();
  phase_ = Phase::backward;
  all_.work_.backward(index_);
  phase_ = Phase::ended;
}

at::Tensor JointShard::wait_with(const at::Tensor& own) {
  value_ = own;
  thread_->wait();
  return std::exchange(value_, at::Tensor{});
}

at::Tensor JointShard::sum_up(const ::torch::nn::Module& layer, const at::Tensor& own) {
  if (phase_ != Phase::forward)
    throw ContextError{
        "the forward pass of a SyncBatchNorm in a backward pass of shards: expected it in `compute`, not in a hook or "
        "in a part that is computed twice"};
  ++sums_;
  layer_ = &layer;
  (void)all_.name_of(layer);
  return wait_with(own);
}

void JointShard::add_point(c10::intrusive_ptr<SumPoint> point, GraphNodePointer node) {
  if (node && point->has_rows) shared_.push_back(std::move(node));
  if (point) {
    point->layer = all_.name_of(*layer_);
    point->pass = points_.size();
  }
  points_.push_back(std::move(point));
}

at::Tensor JointShard::sum_up(const SumPoint& point, const at::Tensor& own) {
  const auto found = std::ranges::find(points_, &point, [](const auto& each) { return each.get(); });
  point_ = static_cast<std::size_t>(found - points_.begin());
  return wait_with(own);
}

std::string JointShard::place() const {
  if (phase_ != Phase::forward) return fmt::format("shard {} has ended its forward pass", number_);
  return fmt::format("shard {} is at sum {}, of {}", number_, sums_, all_.name_of(*layer_));
}

bool JointShards::is_for(const ModuleList& modules) {
  bool any = false;
  for_each_part(modules, [&](const std::string&, const ::torch::nn::Module& part) {
    any |= dynamic_cast<const SyncBatchNorm::Impl*>(&part) != nullptr;
  });
  return any;
}

JointShards::JointShards(Range own, std::span<const Range> subtrees, const ModuleList& modules, const ModuleList& all,
                         Stream& stream, Work work)
    : subtrees_{subtrees},
      stream_{stream},
      device_{*modules.front()->device},
      work_{std::move(work)},
      state_{own, all, *modules.front()->device} {
  for_each_part(modules, [&](const std::string& name, const ::torch::nn::Module& part) {
    modes_.emplace_back(&part, part.is_training());
    if (const auto* const norm = dynamic_cast<const SyncBatchNorm::Impl*>(&part))
      layers_.emplace_back(&part, fmt::format("SyncBatchNorm '{}' of {} features", name, norm->options.num_features()));
  });
  for (std::int64_t number = own.first; number < own.last; ++number)
    shards_.push_back(std::make_unique<JointShard>(*this, shards_.size(), number));
}

JointShards::~JointShards() {
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    state_.give_to(i);
    shards_[i]->thread_->give_up();
  }
  state_.take_back();
}

void JointShards::take_turns() {
  const TakeBack back{state_};
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (!shards_[i]->may_go_on_) continue;
    state_.give_to(i);
    shards_[i]->thread_->take_turn();
    require_same_mode();
  }
}

void JointShards::run_forward(const AddRanks& add_ranks) {
  for (;;) {
    take_turns();
    require_same_place();
    const JointShard& first = *shards_.front();
    if (first.phase_ != JointShard::Phase::forward) return;
    const at::Tensor sum = add_up(fmt::format("sum {}, of {}", first.sums_, name_of(*first.layer_)), add_ranks);
    for (const auto& shard : shards_) shard->value_ = sum;
  }
}

void JointShards::require_same_place() const {
  const JointShard& first = *shards_.front();
  for (const auto& shard : shards_)
    if (shard->phase_ != first.phase_ || shard->layer_ != first.layer_ || shard->sums_ != first.sums_)
      throw InvalidArgument{
          fmt::format("{}, and {}: expected every shard to pass the same SyncBatchNorms in the same order, one without "
                      "samples with an empty batch",
                      first.place(), shard->place())};
}

/// A layer has one mode, which a shard that waits in it needs when it goes on.
void JointShards::require_same_mode() const {
  for (const auto& [module, trains] : modes_)
    if (module->is_training() != trains)
      throw InvalidArgument{
          fmt::format("a shard has changed {} to {} mode, and the others go on in it: expected train() and eval() "
                      "outside of `compute`",
                      module->name(), trains ? "evaluation" : "training")};
}

/// What the shards of all ranks have brought.
at::Tensor JointShards::add_up(std::string_view what, const AddRanks& add_ranks) const {
  std::vector<at::Tensor> sums;
  std::vector<TensorView> views;
  for (const Range& subtree : subtrees_) {
    std::vector<at::Tensor> parts;
    for (std::int64_t i = subtree.first; i < subtree.last; ++i)
      parts.push_back(shards_[static_cast<std::size_t>(i)]->value_);
    const at::Tensor& sum =
        sums.emplace_back(parts.size() == 1 ? parts.front().clone() : at::empty_like(parts.front()));
    views.push_back(view_of(sum, stream_.kind()));
    if (parts.size() == 1) continue;
    const at::Tensor all = at::cat(parts);
    device_.on_stream(
        [&] { fixed_order_sum(view_of(all, stream_.kind()), static_cast<int>(parts.size()), views.back(), stream_); });
  }
  add_ranks(what, views.back(), std::span{views}.first(views.size() - 1));
  return sums.back();
}

const std::string& JointShards::name_of(const ::torch::nn::Module& layer) const {
  const auto found = std::ranges::find(layers_, &layer, &decltype(layers_)::value_type::first);
  if (found == layers_.end()) refuse_stranger();
  return found->second;
}

/// Of the first shard that comes there; null if none does.
c10::intrusive_ptr<SumPoint> JointShards::point_of(std::size_t number) const {
  for (const auto& shard : shards_)
    if (shard->points_[number]) return shard->points_[number];
  return {};
}

/// Autograd runs what was computed last first.
SumPoints JointShards::points() const {
  SumPoints points;
  for (std::size_t number = shards_.front()->points_.size(); number-- > 0;)
    if (auto point = point_of(number); point && point->count > 0) points.push_back(std::move(point));
  return points;
}

SumList JointShards::list() const {
  SumList list{.dtype = DType::f64};
  for (const auto& point : points()) list.counts.push_back(point->count);
  return list;
}

void JointShards::require_none_beyond(std::size_t point) const {
  for (const auto& shard : shards_)
    if (shard->value_.defined() && shard->point_ >= point)
      throw InvalidArgument{fmt::format(
          "the backward pass of shard {} came to a SyncBatchNorm twice, or in another order than that of its graph",
          shard->number_)};
}

void JointShards::run_backward(const AddRanks& add_ranks) {
  for (const auto& shard : shards_) {
    shard->may_go_on_ = true;
    for (const auto& point : shard->points_)
      if (point) point->open = shard.get();
  }
  take_turns();
  for (std::size_t point = shards_.front()->points_.size(); point-- > 0;) {
    const auto sum_point = point_of(point);
    if (!sum_point || sum_point->count == 0) continue;
    require_none_beyond(point + 1);
    for (const auto& shard : shards_) shard->may_go_on_ = shard->value_.defined() && shard->point_ == point;
    std::vector<at::Tensor> waiting;
    const auto options = at::TensorOptions{}.dtype(at::kDouble).device(device_.device());
    const at::Tensor none = at::zeros({sum_point->count}, options);
    for (const auto& shard : shards_) {
      waiting.push_back(shard->value_);
      if (!shard->may_go_on_) shard->value_ = none;
    }
    const at::Tensor sum = add_up("", add_ranks);
    for (std::size_t i = 0; i < shards_.size(); ++i) shards_[i]->value_ = shards_[i]->may_go_on_ ? sum : waiting[i];
    take_turns();
  }
  require_none_beyond(0);
}

void JointShards::as_shard(std::size_t shard, const std::function<void()>& body) {
  const TakeBack back{state_};
  state_.give_to(shard);
  body();
}

void LoneShard::require_none() {
  if (alive_ > 0) refuse_stranger();
}

}  // namespace lockstep::libtorch
