// What the ranks do together with tensors: a request, which exactly one path carries out (paths.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>

#include "core/comm/communicator.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/slice_map.hpp"
#include "sync/reduce/subtrees.hpp"

namespace lockstep::detail {

/// The same on every rank, but for the contents of its operands and their numbers of rows.
struct Request {
  enum class Kind : std::uint8_t {
    all_reduce,  ///< every rank gets the sum, in place
    to_owners,   ///< the first half of a sum: each rank gets it in its own slices
    to_all,      ///< the second half: the owners' slices overwrite everyone's
    reduce,      ///< `root` gets the sum, in place
    broadcast,   ///< what `root` has overwrites everyone's
    all_gather,  ///< every rank gets the rows of all, in rank order
  };

  Kind kind;
  ReduceOp op = ReduceOp::sum;
  // The operands: those of one of these.
  std::span<const TensorView> tensors = {};
  std::span<const Sliced> slices = {};  ///< of a half of a sum; the first half has one
  std::span<IndexedSlices> rows = {};   ///< whose sum is all ranks' rows
  std::span<Tensor> to_gather = {};     ///< of all_gather
  int root = 0;
  std::optional<DType> wire = {};  ///< the type that crosses the network, if not the tensors' own
  int shards = 0;                  ///< each rank brings the sum of its share of so many (Shares); 0: a part of its own
  /// What that makes of the tree over those that send: Shares::additions.
  std::span<const std::uint8_t> additions = {};
  /// If given, a rank brings a part for each of its subtrees, and additions are theirs. Of one message, for all ranks
  /// or its first half, on the paths of the host's tree.
  const Subtrees* subtrees = nullptr;
  /// On the path of two levels: each rank brings one subtree of `shards`, but its node may hold several.
  bool nodes_have_subtrees = false;

  bool is_sum() const { return kind == Kind::all_reduce || kind == Kind::to_owners || kind == Kind::reduce; }

  /// Whether a rank gets the result.
  bool reaches(int rank) const { return kind != Kind::reduce || rank == root; }

  /// What the sum over so many ranks is divided by.
  int divisor(int ranks) const { return op == ReduceOp::mean ? ranks : 1; }

  /// How their pieces are added up.
  SumRule rule(int ranks) const { return {op == ReduceOp::exact_sum, divisor(ranks), additions}; }
};

/// Calls `run` with the request in `wait`. Its tensors and slices are kept, not what they refer to.
inline Work later(const Request& request, std::function<void(const Request&)> run) {
  return Work::later([kept = request, run = std::move(run),
                      tensors = std::vector(request.tensors.begin(), request.tensors.end()),
                      slices = std::vector(request.slices.begin(), request.slices.end())]() mutable {
    kept.tensors = tensors;
    kept.slices = slices;
    run(kept);
  });
}

/// Waits for each, in order.
inline Work all_of(std::vector<Work> works) {
  return Work::later([all = std::make_shared<std::vector<Work>>(std::move(works))] {
    for (Work& each : *all) each.wait();
  });
}

}  // namespace lockstep::detail
