// Flat memory in slices, of which every rank holds its own: what a rank sums for all, updates, and sends to all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/comm/communicator.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep::detail {

/// A slice begins at the start of a tensor, or at a multiple of this many elements after it. So no block of
/// UpdateKernels::sum_of_squares is cut.
constexpr std::int64_t slice_granule = 4096;

/// Memory that is cut into pieces, which are sent one after the other, and each piece into as many slices. Slice k of
/// every piece belongs to the same rank. Slices may be empty. Positions are elements.
class SliceMap {
 public:
  /// Elements [first, first + count).
  struct Slice {
    std::int64_t first;
    std::int64_t count;

    bool operator==(const Slice&) const = default;
  };

  SliceMap() = default;

  /// Of tensors that lie one after the other from position 0. Pieces are about the messages that `packing` makes,
  /// cut where they are longer than a sum sends at once; slices are as even as slice_granule allows. `owners[k]` is the
  /// rank of slice k (Reductions::slice_owners). Pure, so that all ranks make the same map.
  SliceMap(const Packing& packing, std::span<const std::int64_t> counts, std::size_t element_bytes,
           std::vector<int> owners);

  /// `bounds` are those of all pieces, of which each has one more than there are owners.
  SliceMap(std::vector<std::int64_t> bounds, std::vector<int> owners);

  /// The part of the map in [first, first + count), from position 0.
  SliceMap within(std::int64_t first, std::int64_t count) const;

  std::size_t pieces() const { return owners_.empty() ? 0 : bounds_.size() / (owners_.size() + 1); }

  /// Slice k of the piece is [bounds[k], bounds[k + 1]).
  SliceBounds bounds(std::size_t piece) const {
    return std::span{bounds_}.subspan(piece * (owners_.size() + 1), owners_.size() + 1);
  }

  const std::vector<int>& owners() const { return owners_; }

  /// The slices of `rank`, ascending, without empty ones.
  std::vector<Slice> of(int rank) const;

 private:
  std::vector<std::int64_t> bounds_;  ///< of all pieces
  std::vector<int> owners_;
};

/// The owners of slices of which slice k belongs to rank k.
std::vector<int> owners_in_order(int ranks);

/// `bounds` as positions in the piece that they cut.
std::vector<std::int64_t> from_zero(SliceBounds bounds);

}  // namespace lockstep::detail

namespace lockstep {

/// A flat message in slices.
struct Sliced {
  TensorView memory;
  std::shared_ptr<const detail::SliceMap> slices;  ///< covers `memory`
  /// As long as `memory`, or empty. If it is memory that NodeMemory allocated, `Reductions::gather_slices` may pass
  /// the slices through it, and so overwrite it.
  TensorView through = {};
};

}  // namespace lockstep
