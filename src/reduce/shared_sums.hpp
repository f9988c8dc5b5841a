// Sums in the fixed order over the ranks of one node, which read and write each other's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

#include "comm/communicator.hpp"
#include "comm/shm/node_memory.hpp"

namespace lockstep::detail {

/// Every method is COLL and blocking, for host tensors. `root` gets the sum, in place; if it names nobody, every rank
/// does. On others, contents are unspecified afterwards. The bits are those of the fixed tree over the ranks, divided
/// by `divisor`. Tensors outside of the shared memory pass through the slots, in pieces of bounded size.
class SharedSums {
 public:
  explicit SharedSums(NodeMemory& memory) : memory_{memory} {}

  /// LOCAL. Whether `sum_whole` takes these, the same on every rank.
  bool travels_whole(std::span<const TensorView> tensors) const;

  /// One exchange for all tensors, of any types: each rank lays its own down and sums all ranks' itself.
  void sum_whole(std::span<const TensorView> tensors, int divisor, std::optional<int> root = {});

  /// Each rank sums one slice and writes it to the others. Tensors at the same place of memory that NodeMemory
  /// allocated are not copied.
  void sum(const TensorView& flat, int divisor, std::optional<int> root = {});

  /// Every rank sums its slice of `flat`, in place, calls `between`, which may change the slice, and gets the slices of
  /// all others.
  void sum_slices(const TensorView& flat, SliceBounds bounds, const std::function<void()>& between);

  /// The first half alone, for several pieces of `flat`, each with the bounds of a slice for every rank. The others may
  /// read the rest of `flat` until the next call.
  void sum_own(const TensorView& flat, std::span<const std::vector<std::int64_t>> pieces);

  /// The second half for several tensors: every rank gets the slices of all others. They pass through `through`, which
  /// has the shape of `flat` and which nobody needs any more, if that is memory that NodeMemory allocated.
  struct Spread {
    TensorView flat, through;
    std::vector<std::vector<std::int64_t>> pieces;
  };
  void spread(std::span<const Spread> all);

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
