// A step whose shards are computed together.
#include <utility>

#include <fmt/format.h>

#include <lockstep/sync/reduce/fixed_order.hpp>

#include "sync/reduce/declared_sums.hpp"
#include "sync/reduce/fixed_order_sum.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"
#include "torch/joint_shards.hpp"
#include "torch/step.hpp"

namespace lockstep::libtorch {
namespace {

/// The gradients of several shards, side by side. One alone is where the sum is to be, `sum`.
class ShardGradients {
 public:
  /// All arguments must outlive this object.
  ShardGradients(const TensorView& sum, int shards, Stream& stream) : sum_{sum}, shards_{shards}, stream_{stream} {
    if (shards > 1) memory_ = Tensor::zeros(sum.dtype(), {shards * sum.count()}, stream);
    if (shards == 1) sum.fill_zero(stream);
  }

  TensorView of(std::int64_t shard) const {
    return shards_ == 1 ? sum_ : memory_.view().slice(shard * sum_.count(), sum_.count());
  }

  /// Those of a subtree.
  void add_up(const Range& shards, const TensorView& sum) const {
    if (shards_ == 1) return;
    const TensorView parts = memory_.view().slice(shards.first * sum_.count(), shards.size() * sum_.count());
    fixed_order_sum(parts, static_cast<int>(shards.size()), sum, stream_);
  }

 private:
  TensorView sum_;
  int shards_;
  Stream& stream_;
  Tensor memory_;
};

}  // namespace

// The forward passes come before the agreement, each of their sums with one of its own, as that of a single batch. So
// the ranks know the sums of the backward passes when they agree on these.
ReplicatedModule::MeanLoss Step::of_joint_shards(const Compute& compute) {
  const int shards = shares_->shards();
  const Range own = shares_->of(static_cast<int>(rank_));
  const auto count = static_cast<std::size_t>(own.size());
  std::vector<Range> subtrees;  // by the shards' numbers here
  for (const Range& each : shares_->subtrees_of(static_cast<int>(rank_)))
    subtrees.push_back({each.first - own.first, each.last - own.first});
  const std::vector<TensorView> ranges = gradient_ranges();
  std::vector<Loss> losses(count);
  std::vector<std::optional<BackwardPass>> passes(count);
  std::vector<ShardGradients> gradients;
  const auto forward = [&](std::size_t i) {
    losses[i] = compute(static_cast<int>(own.first) + static_cast<int>(i));
    require_loss(losses[i]);
    passes[i].emplace(modules_, losses[i], JointShard::current()->shared());
  };
  const auto backward = [&](std::size_t i) {
    Places places{ranges};
    for (const ShardGradients& each : gradients) places.places.push_back(each.of(static_cast<std::int64_t>(i)));
    run_shard(*passes[i], i, places);
  };
  const ReplicatedModule::Impl::Busy busy{modules_};
  const std::string start = fmt::format("{} shards{}", shards, describe_changed_buffers());
  JointShards joint{own, subtrees, modules_, all_, stream_, {.forward = forward, .backward = backward}};
  joint.run_forward([&](std::string_view what, const TensorView& sum, std::span<const TensorView> others) {
    const auto add = [&](Reductions& reductions) {
      const Reductions::OfShards of_shards{reductions, shards};
      const Reductions::OfSubtrees of_subtrees{reductions, several_ ? &*several_ : nullptr};
      reductions.sum_up(sum, others);
    };
    device().on_stream([&] { inside(context_).declared_merge(fmt::format("{}, {}", start, what), add, here_); });
  });
  for (const auto& pass : passes) {
    joint.state().include(pass->foreign(), pass->strangers());
    joint.state().include({}, modules_);
  }
  const auto compute_backward = [&](DeclaredSums& sums) {
    begin_with_buffers();
    for (const TensorView& range : ranges) gradients.emplace_back(range, static_cast<int>(count), stream_);
    table_gradients_.begin_shards(count);
    device().torch_follows();
    joint.run_backward([&](std::string_view, const TensorView& sum, std::span<const TensorView> others) {
      device().on_stream([&] { sums.all_reduce(sum, others); });
    });
    device().stream_follows();
    for (std::size_t subtree = 0; subtree < subtrees.size(); ++subtree) {
      const std::vector<TensorView> homes = gradient_homes(subtree);
      for (std::size_t i = 0; i < homes.size(); ++i) gradients[i].add_up(subtrees[subtree], homes[i]);
      FixedOrderAccumulator reals{DType::f64, 2 + reals_};
      for (auto i = static_cast<std::size_t>(subtrees[subtree].first); std::cmp_less(i, subtrees[subtree].last); ++i) {
        table_gradients_.end_shard(i);
        joint.as_shard(i, [&] { note_shard(losses[i], changed_buffers(), reals); });
      }
      finish_subtree(reals);
    }
    finish_shards(sums);
  };
  return run(fmt::format("backward together in {}{}", start, text_of(joint.points())), joint.list(), compute_backward);
}

}  // namespace lockstep::libtorch
