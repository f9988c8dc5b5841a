// Where the tensors of a benchmark live, and how the host waits for what is done to them: the one place that knows.
#pragma once

#include <lockstep/runtime/runtime.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::bench {

/// The memory that this rank's reductions work on.
class Memory {
 public:
  explicit Memory(Runtime& runtime);

  /// InvalidArgument where `count` elements cannot be.
  Tensor allocate(DType dtype, std::int64_t count);

  /// Copies between a tensor of the host and one of `allocate`, of the same type and shape. Done when it returns.
  void write(const TensorView& host, const TensorView& here);
  void read(const TensorView& here, const TensorView& host);

  /// Blocks the host until all that was started on this memory is done.
  void wait();

 private:
  Stream& stream_;
};

}  // namespace lockstep::bench
