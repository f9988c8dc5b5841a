// Everything that follows from an optimizer's list of gradients, without their values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "sync/optim/gradient_pieces.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/slice_map.hpp"
#include "sync/step/rows.hpp"
#include "sync/strategy/context_stack.hpp"

namespace lockstep {
namespace detail {

constexpr std::string_view apply_call = "apply_gradients";

/// InvalidArgument unless optimizers of `strategy` can update `variable`.
void require_applicable(const Call& call, Strategy& strategy, const Variable& variable);

/// The same for each of `variables`, none of which may be there twice.
void require_applicable(const Call& call, Strategy& strategy, std::span<const Variable> variables);

/// Elements [first, first + count) of `range`.
VariableStore::FlatRange part_of(const VariableStore::FlatRange& range, std::int64_t first, std::int64_t count);

struct RangeUpdate {
  VariableStore::FlatRange range;
  bool decayed;
  /// If only named rows change: the number of the variable among those whose gradients are slices.
  std::optional<std::size_t> rows_of = {};
};

/// Blocks of UpdateKernels::sum_of_squares that this rank adds up for all.
struct OwnBlocks {
  TensorView part;
  std::int64_t first;  ///< of the blocks, among all that the plan's gradients have
};

}  // namespace detail

/// The checked list. A gradient that is a tensor is dense; others are slices.
class Optimizer::Plan {
 public:
  Plan(const Optimizer& optimizer, Strategy& strategy, std::span<const Gradient> gradients, const Here& here);

  bool is_for(Strategy& strategy, std::span<const Optimizer::Gradient> gradients) const;

  /// InvalidArgument unless each gradient has the shape and type of its variable, and a place of its own.
  void require_fit(const detail::Call& call, std::span<const Optimizer::Gradient> gradients) const;

  /// Those that are slices, on the host. InvalidArgument for parts that do not fit together.
  std::vector<IndexedSlices> slices_on_host(const detail::Call& call,
                                            std::span<const Optimizer::Gradient> gradients) const;

  /// The same for those of variable `number` alone.
  IndexedSlices slices_on_host(const detail::Call& call, std::size_t number, const IndexedSlices& slices) const;

  /// Copies the dense gradients to their memory in the store.
  void bring_home(std::span<const Optimizer::Gradient> gradients) const;

  /// Writes sums of slices to their memory in the store.
  void bring_home(std::span<const IndexedSlices> sums) const;

  /// The number of `variable` in the list. InvalidArgument if it is not there.
  std::size_t number_of(const Variable& variable) const;

  /// The number of that variable's gradient among those in memory, or among the slices (else InvalidArgument).
  std::size_t piece_of(std::size_t number) const;
  std::size_t slices_of(std::size_t number) const;

  /// What travels as one message.
  std::span<const GradientBucket> buckets() const { return buckets_; }

  const Variable& variable_of(std::size_t piece) const;

  VariableStore& store() const { return *store_; }
  std::span<const Variable> variables() const { return variables_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Those whose gradients are slices.
  std::vector<Variable> sparse() const { return those(sparse_); }
  /// The values of the variables that one rank alone updates, by that rank.
  const std::map<int, std::vector<TensorView>>& held_values() const { return held_values_; }
  std::span<const TensorView> homes() const { return homes_; }
  bool is_empty() const { return ranges_.empty(); }
  /// Of the dense gradients, the small ranges that travel together.
  std::span<const TensorView> small_ranges() const { return small_ranges_; }
  /// All others, as messages.
  std::span<const GradientBucket> large_buckets() const { return large_buckets_; }
  std::span<const detail::RangeUpdate> updates() const { return updates_; }

  /// Whether the ranks share the update of some variables (VariableStore::share_updates), in `updates` by own slices.
  bool is_shared() const { return !shared_.empty(); }
  /// The shared variables' memory.
  std::span<const VariableStore::FlatRange> shared_ranges() const { return shared_; }
  /// Their values, which each rank has updated in its slices.
  std::span<const Sliced> gathers() const { return gathers_; }

  /// Enqueues the sums of squares of this rank's blocks: those in its slices, and on rank 0 all that are not shared.
  void sum_own_blocks(const detail::UpdateKernels& kernels) const;
  /// The same among all blocks, of which the sum over the ranks holds all. Call it after a wait for the stream.
  std::vector<double> own_among_all() const;
  /// What the ranks compare. A list that is longer than `room` begins with its digest, so that a late difference shows.
  const std::string& list(std::size_t room) const { return list_.size() <= room ? list_ : marked_list_; }

 private:
  std::vector<Variable> those(std::span<const std::size_t> numbers) const;
  void plan_sums();
  void plan_updates(const Optimizer& optimizer);
  void add_update(const VariableStore::FlatRange& range, bool decayed);
  void share(const VariableStore::FlatRange& range);
  void plan_blocks();

  VariableStore* store_;
  int rank_, ranks_;
  std::vector<Variable> variables_;  ///< kept alive, so that no other variable can get the address of one of them
  std::vector<TensorView> homes_;    ///< their gradients in the store
  std::vector<std::size_t> dense_, sparse_;  ///< the variables whose gradients are dense, and slices
  std::vector<VariableStore::FlatRange> ranges_;
  std::map<int, std::vector<TensorView>> held_values_;
  detail::GradientPieces pieces_;  ///< of the dense ones
  std::vector<GradientBucket> buckets_;
  std::vector<TensorView> small_ranges_;
  std::vector<GradientBucket> large_buckets_;
  std::vector<detail::RangeUpdate> updates_;  ///< the same memory, cut so that each pass has one weight decay
  std::vector<VariableStore::FlatRange> shared_;
  std::vector<Sliced> gathers_;
  std::vector<detail::OwnBlocks> own_blocks_;
  std::int64_t blocks_ = 0;  ///< of all ranks
  Tensor own_squares_;       ///< of this rank's blocks, one after the other, on the device
  Tensor squares_on_host_;   ///< a copy
  std::string list_, marked_list_;
};

}  // namespace lockstep
