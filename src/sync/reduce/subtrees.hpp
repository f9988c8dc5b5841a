// Sums over shards of which a rank has several subtrees (Shares), so that it brings a part for each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
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
  /// COLL over the ranks of a node. Makes the other memory, in which they reduce in place if they do in `sum`. Each has
  /// as much as the rank with most subtrees needs. `sum` is host memory, and must outlive this object. InvalidArgument
  /// for 16-bit floats, whose sums over a subtree would be rounded.
  Subtrees(Reductions& reductions, const Shares& shares, int rank, const TensorView& sum);

  const Shares& shares() const { return shares_; }
  int rank() const { return rank_; }

  /// Shares::additions.
  std::span<const std::uint8_t> additions() const { return additions_; }

  /// Of a message in the memory of the sum, this rank's parts in the order of its subtrees. InvalidArgument for other
  /// memory.
  std::vector<TensorView> parts_of(const TensorView& message) const;

  /// The same place of all the other memory, also of what this rank does not need.
  std::vector<TensorView> others_of(const TensorView& message) const;

 private:
  Shares shares_;
  int rank_;
  std::vector<std::uint8_t> additions_;
  TensorView sum_;
  std::vector<Buffer> others_;
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
