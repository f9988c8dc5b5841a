// Path::in_shared_memory: sums in the fixed tree over the ranks of one node, which read and write each other's memory.
//
// Nothing is sent. For S bytes on each of n ranks, at the same place of memory that they share:
//   1. a fence, from which no rank goes on before all have come: all tensors are complete
//   2. Each rank adds up its slice of all n tensors, in the tree, and writes the sum to those of all ranks, or of the
//      root: it reads S bytes and writes S.
//   3. a fence: all slices are written
// Other tensors pass through slots, a piece at a time: each rank also copies S bytes in and S out. Up to 2 KiB for all
// ranks, of tensors of any types, or more where ranks take turns on a core, pass through them whole:
//   1. each rank lays its own down
//   2. a fence; then each adds up everything itself, and reads n S bytes
//
// A rank that has several subtrees has a part for each of them at the same place of other memory that they share, or
// all of them pass through its slot.
//
// The halves of a sum in slices are steps 1 and 2, writing one's own alone; and writing it to all between two fences,
// from where each copies it to its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/comm/communicator.hpp"
#include "core/comm/shm/node_memory.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/request.hpp"

namespace lockstep::detail {

/// Where the parts lie that all ranks have of a message, in memory that they share.
struct PartPlaces {
  std::optional<NodeMemory::Place> message;  ///< empty if not all are there
  std::vector<NodeMemory::Place> others;     ///< of its other memory (Subtrees)
  std::uint64_t word = 0;                    ///< as NodeMemory::Place, of all

  PartPlaces(const NodeMemory& memory, const TensorView& whole, const Subtrees* subtrees);

  /// Of the parts of ranks with such Shares::numbers, where each begins, in bytes behind the message of the first rank.
  std::vector<std::int64_t> offsets(std::span<const int> numbers) const;
};

class SharedSums {
 public:
  explicit SharedSums(NodeMemory& memory) : memory_{memory} {}

  /// LOCAL. Whether tensors that have room (padded) in so many bytes travel as one exchange, the same on every rank.
  bool takes_whole(std::int64_t bytes) const;

  /// COLL and blocking, for host tensors. A sum of one flat tensor, or of several that travel whole; or a half of a sum
  /// whose slice k belongs to rank k: the first of one message, the second of several. After its first half, others may
  /// read the memory until the next call.
  void run(const Request& request);

 private:
  /// Where a sum finds the parts of all ranks. If a rank has one, they begin at the strides of `place`.
  struct Met {
    NodeMemory::Place place;
    std::vector<std::int64_t> offsets;  ///< HostPieces

    HostPieces from(std::ptrdiff_t bytes, int ranks) const {
      const int count = offsets.empty() ? ranks : static_cast<int>(offsets.size());
      return {place.first + bytes, place.stride, count, offsets};
    }
  };

  std::optional<Met> meet_at(const TensorView& flat, const Subtrees* subtrees = nullptr);
  Met meet_in_slots(std::span<const TensorView> views, std::size_t room, std::size_t of_part, const Subtrees* subtrees);
  void sum_whole(const Request& request);
  void sum_slice(const Met& met, const TensorView& flat, const Request& request);
  void sum_in_slots(const TensorView& flat, const Request& request);
  void sum_own(const Sliced& message, const SumRule& rule, const Subtrees* subtrees);
  void sum_own_in_slots(const TensorView& flat, SliceBounds bounds, const SumRule& rule, const Subtrees* subtrees);
  void spread(std::span<const Sliced> messages);
  void spread_in_slots(const TensorView& flat, SliceBounds bounds);

  NodeMemory& memory_;
};

}  // namespace lockstep::detail
