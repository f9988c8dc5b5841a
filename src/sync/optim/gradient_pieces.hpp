// Gradients in the store, and the messages in which they travel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/parts.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep::detail {

/// The gradients of some variables, numbered in the order of memory. Each is a piece, with the padding after it.
class LOCKSTEP_PARTS_API GradientPieces {
 public:
  GradientPieces() = default;

  /// ContextError unless all variables are sealed.
  GradientPieces(const VariableStore& store, std::span<const Variable> variables, const Here& here);

  /// Their memory.
  std::span<const VariableStore::FlatRange> ranges() const { return ranges_; }

  /// What travels as one message.
  std::vector<GradientBucket> buckets(const Reductions& reductions) const {
    return buckets(reductions.packing(), reductions.enough_bytes());
  }

  /// The same if `enough_bytes` were those of the reductions.
  std::vector<GradientBucket> buckets(const Packing& packing, std::int64_t enough_bytes) const;

  std::size_t count() const;

  /// The piece of a variable, and the variable of a piece. Variables count as they were given.
  std::size_t piece_of(std::size_t variable) const { return pieces_[variable]; }
  std::size_t variable_of(std::size_t piece) const {
    return static_cast<std::size_t>(std::ranges::find(pieces_, piece) - pieces_.begin());
  }

 private:
  std::vector<VariableStore::FlatRange> ranges_;
  std::vector<std::size_t> pieces_;
  std::vector<std::vector<std::int64_t>> counts_;  ///< of elements, in each range
};

}  // namespace lockstep::detail
