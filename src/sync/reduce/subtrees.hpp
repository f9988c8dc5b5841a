// Sums over shards of which a rank has several subtrees (Shares), so that it brings a part for each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/parts.hpp"
#include "core/order/shares.hpp"

namespace lockstep {

class Reductions;

/// Where a rank has its parts of large sums: that of its last subtree in the memory of the sum, where messages lie, and
/// those of the others, in their order, at the same place of other memory.
class LOCKSTEP_PARTS_API Subtrees {
 public:
  /// The memory of sums, and as much other memory for each subtree that some rank has beside its last.
  struct Memory {
    TensorView sum;
    std::vector<Buffer> others;
  };

  /// For sums of few numbers, and for large ones once they have memory.
  Subtrees(const Shares& shares, int rank);

  /// COLL over the ranks of a node. As `add(allocate(reductions, sum))`.
  Subtrees(Reductions& reductions, const Shares& shares, int rank, const TensorView& sum);

  /// COLL over the ranks of a node. Makes the other memory, in which they reduce in place if they do in `sum`, which is
  /// host memory. InvalidArgument for 16-bit floats, whose sums over a subtree would be rounded.
  std::shared_ptr<const Memory> allocate(Reductions& reductions, const TensorView& sum) const;

  /// LOCAL, the same on every rank. From here on, messages may lie in the memory of its sums, which must outlive this
  /// object.
  void add(std::shared_ptr<const Memory> memory) { memory_.push_back(std::move(memory)); }

  /// LOCAL. Whether `memory` is what `allocate` makes of `sum`, or more.
  bool fits(const Memory& memory, const TensorView& sum) const;

  const Shares& shares() const { return shares_; }
  int rank() const { return rank_; }

  /// Shares::additions.
  std::span<const std::uint8_t> additions() const { return additions_; }

  /// Of a message in the memory of a sum, this rank's parts in the order of its subtrees. InvalidArgument for other
  /// memory.
  std::vector<TensorView> parts_of(const TensorView& message) const;

  /// The same place of all the other memory, also of what this rank does not need.
  std::vector<TensorView> others_of(const TensorView& message) const;

 private:
  Shares shares_;
  int rank_;
  std::vector<std::uint8_t> additions_;
  std::vector<std::shared_ptr<const Memory>> memory_;
};

/// A sum of few numbers. Each rank brings those of its subtrees, among zeros for the others, as integers: their sum
/// changes no bit, however it is made. Then each adds up the tree itself. f32 or f64, on the host.
class LOCKSTEP_PARTS_API PlacedSum {
 public:
  /// InvalidArgument for 16-bit floats.
  PlacedSum(const Shares& shares, int rank, DType dtype, std::int64_t count);

  /// COLL. Such a sum of `parts`, one for each subtree of this rank. `sum_up` replaces the integers by their sum over
  /// the ranks.
  static void make(const Subtrees& subtrees, std::span<const TensorView> parts, const TensorView& sum,
                   const std::function<void(const TensorView& integers)>& sum_up);

  /// Where this rank writes the numbers of its subtree `number`, counted from 0.
  TensorView of_own(std::size_t number) const;

  /// What is to be added up over the ranks.
  const Tensor& integers() const { return integers_; }

  /// Writes the sum, once they are added up: in place, or elsewhere.
  void finish(const TensorView& sum) const { finish(integers_, sum); }
  void finish(const Tensor& integers, const TensorView& sum) const;

 private:
  TensorView numbers_in(const Tensor& integers, std::int64_t place) const;

  DType dtype_;
  Tensor integers_;
  std::int64_t count_, first_;
  int subtrees_;
  std::vector<std::uint8_t> additions_;
};

}  // namespace lockstep
