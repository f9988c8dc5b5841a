// The sum whose bits do not depend on who adds: one binary tree over the parts, the same for every way to deal the
// parts to ranks.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// Sums `parts` equal pieces of `pieces`, laid out one after the other, into `sum`: element by element, bracketed as
///   tree(0, n) = tree(0, m) + tree(m, n), m the largest power of two below n.
/// So a rank that sums an aligned run of 2^k of the pieces itself, and hands on the result as one piece, changes no
/// bit; but for f16 and bf16, whose tree is one of f32 numbers that is rounded once, at its end, to nearest even.
/// LOCAL. `sum` has the length of one piece and may not overlap `pieces`. Integers wrap around. Enqueued on `stream`,
/// on memory of its device; the same bits on every kind of device, but for those of NaNs.
void fixed_order_sum(const TensorView& pieces, int parts, const TensorView& sum, Stream& stream = host_stream());

/// The same tree for parts that come one after the other: the sums of the shards of one rank, without keeping them all.
/// Memory for log2(parts) + 1 of them.
class FixedOrderAccumulator {
 public:
  /// For tensors of `count` elements of `dtype`, in memory of the stream's device; `stream` must outlive it. Parts and
  /// sum are written and read by work that is enqueued there. InvalidArgument for f16 and bf16, of which every sum but
  /// the last would have to be kept in more bits: accumulate in f32.
  FixedOrderAccumulator(DType dtype, std::int64_t count, Stream& stream = host_stream());

  /// The same for tensors like `home`, in which the first part is written and the sum grows, so that `finish(home)` has
  /// nothing to copy. Its memory must outlive this object.
  explicit FixedOrderAccumulator(const TensorView& home, Stream& stream = host_stream());

  /// Where the next part is to be written: a view of one dimension. Its old content is unspecified.
  TensorView next();

  /// Takes what was written to `next()` as the next part.
  void push();

  /// The sum of all parts pushed since the last call, into `sum`. There must be at least one.
  void finish(const TensorView& sum);

  /// Forgets the parts pushed since the last `finish`.
  void clear();

 private:
  struct Partial {
    Tensor memory;  ///< none of the home
    TensorView value;
    std::int64_t parts = 0;  ///< 0: free
  };

  void join_last_two();

  DType dtype_;
  std::int64_t count_;
  Stream* stream_;
  std::vector<Partial> partials_;  ///< sizes strictly decreasing, then the free ones
  std::size_t used_ = 0;
};

}  // namespace lockstep
