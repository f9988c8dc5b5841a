// The shards of a rank, computed together: for a SyncBatchNorm, whose result for a sample depends on all samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalState.h>

#include "sync/reduce/declared_sums.hpp"
#include "torch/sync_sums.hpp"
#include "torch/turn_state.hpp"
#include "torch/turn_thread.hpp"

namespace lockstep::libtorch {

class JointShards;

/// One of them, as the layers see it that its thread comes to.
class JointShard final : public SumMaker {
 public:
  /// `index` counts from the rank's first.
  JointShard(JointShards& all, std::size_t index, std::int64_t number);
  ~JointShard() override;

  /// The one that this thread computes; null elsewhere.
  static JointShard* current() { return current_; }

  /// In a forward pass. `own` and those of all other shards of all ranks, which must come to the same layer.
  at::Tensor sum_up(const ::torch::nn::Module& layer, const at::Tensor& own);

  /// The next point of the forward pass, and its node. Both null without a graph: no backward pass comes there.
  void add_point(c10::intrusive_ptr<SumPoint> point, GraphNodePointer node);

  /// What the losses of other shards depend on, too.
  const GraphNodes& shared() const { return shared_; }

  /// In the backward pass.
  at::Tensor sum_up(const SumPoint& point, const at::Tensor& own) override;

 private:
  friend class JointShards;
  enum class Phase : std::uint8_t { forward, between, backward, ended };

  void run();
  at::Tensor wait_with(const at::Tensor& own);
  std::string place() const;

  static inline thread_local JointShard* current_ = nullptr;

  JointShards& all_;
  std::size_t index_;
  std::int64_t number_;
  Phase phase_ = Phase::forward;
  SumPoints points_;  ///< of the forward pass
  GraphNodes shared_;

  // Where it waits.
  std::size_t sums_ = 0;                        ///< in the forward pass, so far
  const ::torch::nn::Module* layer_ = nullptr;  ///< in the forward pass
  std::size_t point_ = 0;                       ///< in the backward pass
  at::Tensor value_;                            ///< its own part, and then the sum
  bool may_go_on_ = true;
  std::unique_ptr<TurnThread> thread_;
};

/// One shard computes at any time, on a thread of its own, until it comes to such a layer or ends; then the next does.
/// When all of them are there, what they have brought is added up in one tree over all shards of all ranks.
class JointShards {
 public:
  struct Work {
    std::function<void(std::size_t)> forward, backward;  ///< of a shard, counted from the rank's first
  };
  /// In place of `sum`, which is that of this rank's last subtree; `others` are those of the others (sum_up).
  using AddRanks =
      std::function<void(std::string_view what, const TensorView& sum, std::span<const TensorView> others)>;

  /// True if a module holds a layer that takes part in this.
  static bool is_for(const ModuleList& modules);

  /// Each shard has buffers of its own, of the modules `all`. `subtrees` are those of the sums, by the shards' numbers
  /// on the rank. All arguments but `work` must outlive this object.
  JointShards(Range own, std::span<const Range> subtrees, const ModuleList& modules, const ModuleList& all,
              Stream& stream, Work work);

  /// Shards that have not ended are given up.
  ~JointShards();

  /// Up to the end of all forward passes. `add_ranks` is called on this thread; `what` tells the sums apart. Rethrows
  /// what the first shard has thrown. InvalidArgument if shards come to different layers.
  void run_forward(const AddRanks& add_ranks);

  /// After run_forward: the sums of the backward passes, in their order.
  SumPoints points() const;
  SumList list() const;

  /// Makes all sums of the list, with zeros for shards that do not come to one.
  void run_backward(const AddRanks& add_ranks);

  /// Calls `body` with the buffers of a shard, counted from the first.
  void as_shard(std::size_t shard, const std::function<void()>& body);

  TurnState& state() { return state_; }

 private:
  friend class JointShard;

  void take_turns();
  at::Tensor add_up(std::string_view what, const AddRanks& add_ranks) const;
  void require_same_place() const;
  const std::string& name_of(const ::torch::nn::Module& layer) const;
  c10::intrusive_ptr<SumPoint> point_of(std::size_t number) const;
  void require_same_mode() const;
  void require_none_beyond(std::size_t point) const;

  std::span<const Range> subtrees_;
  Stream& stream_;
  TorchDevice& device_;
  std::vector<std::pair<const ::torch::nn::Module*, std::string>> layers_;
  std::vector<std::pair<const ::torch::nn::Module*, bool>> modes_;  ///< whether it trains
  Work work_;
  at::ThreadLocalState torch_state_;
  TurnState state_;
  std::vector<std::unique_ptr<JointShard>> shards_;
};

/// While one lives, this thread computes a shard by itself, and a layer that would add up over all of them is refused.
class LoneShard {
 public:
  LoneShard() { ++alive_; }
  LoneShard(const LoneShard&) = delete;
  LoneShard& operator=(const LoneShard&) = delete;
  ~LoneShard() { --alive_; }

  /// ContextError while one lives.
  static void require_none();

 private:
  static inline thread_local int alive_ = 0;
};

}  // namespace lockstep::libtorch
