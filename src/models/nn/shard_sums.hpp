// Sums of gradients over the shards of a rank, in the fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "models/nn/shard_watch.hpp"

namespace lockstep {
template <>
struct detail::Inside<nn::GradientBuffer> {
  const nn::GradientBuffer& buffer;

  /// The same buffer, whose `ready` tells `listener`, which must outlive the result. Without it, nobody hears.
  nn::GradientBuffer reporting_to(nn::ReadyListener& listener) const { return buffer.reporting_to(listener); }
};
inline detail::Inside<nn::GradientBuffer> inside(const nn::GradientBuffer& buffer) {
  return {buffer};
}
}  // namespace lockstep

namespace lockstep::nn {

/// Hears which gradients a backward pass has completed.
class ReadyListener {
 public:
  /// `variable` is a position in GradientBuffer::variables.
  virtual void on_ready(std::size_t variable) = 0;

 protected:
  ~ReadyListener() = default;
};

bool is_same_memory(const TensorView& a, const TensorView& b);

/// Sums of gradients and statistics over the shards of a rank. Each variable's gradient is added up by itself, as soon
/// as a shard has it, in the tree of fixed_order_sum: so models may take one shard after the other, or all of them
/// layer by layer.
class ShardSums final : private ReadyListener {
 public:
  ShardSums() = default;
  ShardSums(const ShardSums&) = delete;
  ShardSums& operator=(const ShardSums&) = delete;

  /// Begins the sums of `shards` shards, less the audited ones of `watch`: gradients and statistics in `sum`, which
  /// hears of each variable when its sum is complete. Forgets unfinished ones. Memory is kept from call to call, also
  /// if `sum` has the same layout elsewhere. `watch` may be null; otherwise it must outlive the sums.
  void begin(const GradientBuffer& sum, std::int64_t shards, ShardWatch* watch = nullptr);

  /// Number of shards that are added up: all but audited ones.
  std::int64_t added() const { return shards_; }
  bool is_audited(std::int64_t shard) const { return shard >= shards_; }

  /// Where a shard's gradients and statistics are written. When one is ready, it is added to those of earlier shards,
  /// in whose order they must come. The first shard has its place in the sum itself. Those of an audited shard are
  /// shown to the watch alone.
  GradientBuffer of_shard(std::int64_t shard);

  /// Takes all gradients of the next shard as ready, and adds its statistics, or shows those of an audited shard.
  void push();

  /// Whether kernels may add up the shards themselves: not if the watch wants all of a gradient in one piece.
  bool can_be_at_once() const;
  /// For such kernels: where a variable's sum is written, what to call with the next part of a shard's gradient (empty
  /// if nobody wants it), and that the sum is there.
  TensorView sum_of(const Variable& variable) const { return sum_->of(variable); }
  std::function<void(const TensorView& part)> shown_of(std::int64_t shard, const Variable& variable) const;
  void sum_is_ready(const Variable& variable);

  /// Call it when all shards are there.
  void finish();

 private:
  /// A place for the gradients of one shard, or of several that were added up.
  struct Place {
    Tensor memory;  ///< empty for the sum's own
    GradientBuffer buffer;
    std::vector<TensorView> gradients;
  };

  std::size_t place_for(std::int64_t shard) const;
  void on_ready(std::size_t variable) override;
  [[noreturn]] void throw_ready_before(std::size_t variable) const;
  void reserve();
  Place place_of(Tensor memory, const GradientBuffer& buffer);
  void add_up(std::size_t variable, std::size_t left, std::size_t used);

  std::optional<GradientBuffer> sum_;  ///< empty before the first use
  std::int64_t shards_ = 0, audited_ = 0, pushed_ = 0;
  ShardWatch* watch_ = nullptr;
  std::vector<Place> places_;
  std::vector<std::int64_t> added_;  ///< shards of each variable
  std::optional<FixedOrderAccumulator> statistics_sum_;
};

}  // namespace lockstep::nn
