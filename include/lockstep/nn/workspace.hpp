// Memory for what a model computes with, which a step takes again and again.
#pragma once

#include <cstdint>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

/// Flat memory that is cut into views, and grows where the views of one layout need more than those of all before.
class Workspace {
 public:
  /// In memory of the stream's device, which must outlive it.
  Workspace(DType dtype, Stream& stream) : dtype_{dtype}, stream_{&stream} {}

  /// What `layout(*this)` returns, which takes the views it needs. It is called twice, first for nothing but their
  /// sizes; the views of the second call are those that count. Views of earlier calls are void.
  template <class Layout>
  auto arrange(Layout&& layout) {
    count();
    (void)layout(*this);
    reserve();
    return layout(*this);
  }

  /// Within `arrange`: a view apart from those taken before in this call, aligned to Buffer::alignment, with no
  /// particular value in it.
  TensorView take(Shape shape);

 private:
  void count();
  void reserve();

  DType dtype_;
  Stream* stream_;
  bool counting_ = false;
  std::int64_t taken_ = 0;
  Tensor memory_;
};

}  // namespace lockstep::nn
