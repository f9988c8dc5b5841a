// The leaves of one reduction: what the ranks must agree on, and the copies that are reduced in place.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/values/leaves.hpp>

#include "core/comm/communicator.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/context_stack.hpp"

namespace lockstep::detail {

/// The stream for work on `tensor`: the host's for a host tensor, else `of_device`.
Stream& stream_for(const Tensor& tensor, Stream& of_device);

/// Replaces each leaf by a copy on the same device. `of_device` is the stream of this rank's device.
void copy_leaves(std::vector<Leaf>& leaves, Stream& of_device);

/// COLL, blocking, in cross-replica context. Copies replica 0's leaves to every rank. `more` follows them in the tag.
void broadcast_leaves(Strategy& strategy, const Call& call, std::vector<Leaf>& leaves, std::string_view more);

/// " for 'w'": how a tag names the variable that a reduction is for.
std::string destination_text(const Variable& variable);

/// How replicas' values become one, unless that is the first replica's.
inline ReduceOp op_of(Variable::Aggregation aggregation) {
  return aggregation == Variable::Aggregation::mean ? ReduceOp::mean : ReduceOp::sum;
}

/// LOCAL. InvalidArgument, which begins with `call`, for a tensor without a first extent.
void require_rows(const Call& call, std::span<const Tensor> tensors);

/// As `lockstep::require_reducible`, with the call at the beginning of the message.
template <class Value>
void require_reducible(const Call& call, ReduceOp op, const Value& value) {
  try {
    lockstep::require_reducible(op, value);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument{call.text() + error.what()};
  }
}

/// Dense leaves are reduced together, and so are the slices.
class ReducedLeaves {
 public:
  /// Replaces `leaves` by copies on the same device, which it reduces in place; they must outlive it. `stream` is that
  /// of the rank's device. InvalidArgument, which begins with `call`, if `op` is not defined for a leaf.
  ReducedLeaves(const Call& call, ReduceOp op, std::vector<Leaf>& leaves, Stream& stream);

  /// "reduce_to: sum of f32[3], slices f32[…, 2] of [10, 2]" and `more`. Without numbers of rows, which may differ.
  std::string text(std::string_view method, std::string_view more = {}) const;

  /// The leaves alone, for a broadcast: "f32[3], i64[]".
  std::string leaves_text() const;

  void all_reduce(Reductions& reductions) {
    for_both([&](auto some) { reductions.all_reduce(op_, some); });
  }
  /// `all_reduce` in two parts. The first returns at once.
  Work start_dense(Reductions& reductions) {
    return views_.empty() ? Work::done() : reductions.start_all_reduce(op_, views_);
  }
  void all_reduce_slices(Reductions& reductions) {
    for_slices([&](auto some) { reductions.all_reduce(op_, some); });
  }
  void reduce_to_one(Reductions& reductions, int root) {
    for_both([&](auto some) { reductions.reduce_to_one(op_, some, root); });
  }
  void broadcast(Reductions& reductions, int root) {
    for_both([&](auto some) { reductions.broadcast(some, root); });
  }

 private:
  /// Calls `collective` once for the dense leaves and once for the slices, which it replaces.
  template <class Collective>
  void for_both(Collective&& collective) {
    if (!views_.empty()) collective(std::span<const TensorView>{views_});
    for_slices(collective);
  }

  template <class Collective>
  void for_slices(Collective&& collective) {
    std::vector<IndexedSlices> all;
    for (const Leaf& leaf : leaves_)
      if (const auto* const slices = std::get_if<IndexedSlices>(&leaf)) all.push_back(*slices);
    if (all.empty()) return;
    collective(std::span{all});
    auto next = all.begin();
    for (Leaf& leaf : leaves_)
      if (std::holds_alternative<IndexedSlices>(leaf)) leaf = std::move(*next++);
  }

  ReduceOp op_;
  std::vector<Leaf>& leaves_;
  std::vector<TensorView> views_;
};

}  // namespace lockstep::detail
