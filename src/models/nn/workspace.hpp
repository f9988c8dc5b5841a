// Memory for a model's computation, reused from step to step.
#pragma once

#include <cstdint>
#include <utility>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::nn {

/// Memory that is cut into views. It grows when a layout needs more than all before.
class Workspace {
 public:
  /// For views of `dtype` mostly, in memory of the stream's device. The stream must outlive it.
  Workspace(DType dtype, Stream& stream) : dtype_{dtype}, stream_{&stream} {}

  /// Returns what `layout(*this)` returns; `layout` takes the views it needs. It is called twice, the first time only
  /// to find their sizes: the views of the second call count. Invalidates the views of earlier calls.
  template <class Layout>
  auto arrange(Layout&& layout) {
    count();
    (void)layout(*this);
    reserve();
    return layout(*this);
  }

  /// Inside `arrange`: a view that does not overlap those taken earlier in this call, aligned to 256 bytes, with
  /// unspecified content.
  TensorView take(Shape shape) { return take(std::move(shape), dtype_); }
  TensorView take(Shape shape, DType dtype);

 private:
  void count();
  void reserve();

  DType dtype_;
  Stream* stream_;
  bool counting_ = false;
  std::int64_t taken_bytes_ = 0;
  Tensor memory_;  ///< of bytes
};

}  // namespace lockstep::nn
