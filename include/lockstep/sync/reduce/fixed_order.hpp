// The sum whose bits do not depend on who adds: one binary tree over the parts, the same however the parts are
// distributed over ranks.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep {

/// Adds up parts that arrive one after the other, such as the shards of one rank, in the binary tree of fixed-order
/// reductions. Needs memory for log2(parts) + 1 parts. Every method is LOCAL.
class LOCKSTEP_API FixedOrderAccumulator {
 public:
  /// For tensors of `count` elements of `dtype`, in memory of the stream's device. `stream` must outlive this object.
  /// Work enqueued there writes and reads the parts and the sum. InvalidArgument for f16 and bf16, whose partial sums
  /// would need more bits: accumulate in f32.
  FixedOrderAccumulator(DType dtype, std::int64_t count, Stream& stream = Stream::host());

  /// The same for tensors like `home`. The first part is written to `home` and the sum grows there, so `finish(home)`
  /// copies nothing. Its memory must outlive this object.
  explicit FixedOrderAccumulator(const TensorView& home, Stream& stream = Stream::host());

  /// Where to write the next part: a view of one dimension, whose old content is unspecified.
  TensorView next();

  /// Takes what was written to `next()` as the next part.
  void push();

  /// Writes the sum of all parts pushed since the last call to `sum`. InvalidArgument if there are none.
  void finish(const TensorView& sum);

  /// Discards the parts pushed since the last `finish`.
  void clear();

 private:
  struct Partial {
    Tensor memory;  ///< empty for the home
    TensorView value;
    std::int64_t parts = 0;  ///< 0 if free
  };

  void join_last_two();

  DType dtype_;
  std::int64_t count_;
  Stream* stream_;
  std::vector<Partial> partials_;  ///< in use, of strictly decreasing sizes, then free
  std::size_t used_ = 0;
};

}  // namespace lockstep
