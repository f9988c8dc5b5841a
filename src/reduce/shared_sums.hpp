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
// The halves of a sum in slices are steps 1 and 2, writing one's own alone; and, between fences, writing it to all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

#include "comm/communicator.hpp"
#include "comm/shm/node_memory.hpp"
#include "reduce/request.hpp"
#include "reduce/slice_map.hpp"

namespace lockstep::detail {

/// Every method is COLL and blocking, for host tensors. `root` gets the sum, in place; if it names nobody, every rank
/// does. On others, contents are unspecified afterwards. The bits are those of the fixed tree over the ranks, divided
/// by `divisor`. Tensors outside of the shared memory pass through the slots, in pieces of bounded size.
class SharedSums {
 public:
  explicit SharedSums(NodeMemory& memory) : memory_{memory} {}

  /// A sum of one flat tensor, or of several that travel whole; or a half of a sum whose slice k belongs to rank k.
  void run(const Request& request);

  /// LOCAL. Whether `sum_whole` takes tensors that have room (padded) in so many bytes, the same on every rank.
  bool takes_whole(std::int64_t bytes) const;

  /// One exchange for all tensors, of any types: each rank lays its own down and sums all ranks' itself.
  void sum_whole(std::span<const TensorView> tensors, int divisor, std::optional<int> root = {});

  /// Each rank sums one slice and writes it to the others. Tensors at the same place of memory that NodeMemory
  /// allocated are not copied.
  void sum(const TensorView& flat, int divisor, std::optional<int> root = {});

  /// The first half alone, for messages whose slice k belongs to rank k. The others may read the rest of the memory
  /// until the next call.
  void sum_own(const Sliced& message);

  /// The second half for several messages: every rank gets the slices of all others.
  void spread(std::span<const Sliced> messages);

 private:
  struct Targets {
    int first, last;
  };
  Targets targets(std::optional<int> root) const {
    return root ? Targets{*root, *root + 1} : Targets{0, memory_.size()};
  }
  void sum_slice(std::byte* first, std::int64_t stride, DType dtype, std::int64_t count, int divisor, Targets to);
  void sum_own_in_slots(const TensorView& flat, SliceBounds bounds);
  void spread_in_slots(const TensorView& flat, SliceBounds bounds);
  void sum_in_slots(const TensorView& flat, int divisor, std::optional<int> root);

  NodeMemory& memory_;
};

}  // namespace lockstep::detail
