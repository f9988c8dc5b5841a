// Where a benchmark's tensors live, and how the host waits for work on them. Only this file knows.
#pragma once

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/job/runtime/runtime.hpp>

namespace lockstep::bench {

/// The memory that this rank's reductions work on.
class Memory {
 public:
  explicit Memory(Runtime& runtime);

  /// Zeros. InvalidArgument if no tensor can have `count` elements.
  Tensor allocate(DType dtype, std::int64_t count);

  /// COLL. The same where a variable's gradient would lie.
  Tensor allocate_for_gradients(DType dtype, std::int64_t count);

  /// Copy between a host tensor and one of `allocate`, of the same type and shape. The copy is done on return.
  void write(const TensorView& host, const TensorView& here);
  void read(const TensorView& here, const TensorView& host);

  /// Blocks the host until all work started on this memory is done.
  void wait();

 private:
  Strategy& strategy_;
  Stream& stream_;
};

}  // namespace lockstep::bench
