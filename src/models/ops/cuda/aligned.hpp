// Operands as cuBLASLt may read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/device/device.hpp"

namespace lockstep::ops::cuda {

/// The alignment of every operand, and all that the library's fastest loads ask for. Views may begin at any element;
/// those with less alignment are copied. Letting the library see the real alignment would be simpler, but its choice of
/// an algorithm, and with it the bits, would then depend on where an operand lies.
inline constexpr std::size_t operand_alignment = 16;

/// A view's memory as the library may use it: in place, or in an aligned copy if it is not aligned enough.
class Aligned {
 public:
  static Aligned read(const TensorView& view, Stream& stream) {
    Aligned made{view, stream};
    if (made.beside_.data()) stream.copy(made.data(), view.data(), view.bytes());
    return made;
  }
  static Aligned written(const TensorView& view, Stream& stream) { return {view, stream}; }

  void* data() const { return beside_.data() ? beside_.data() : view_.data(); }

  /// Copies what was written back to the view.
  void settle(Stream& stream) const {
    if (beside_.data()) stream.copy(view_.data(), beside_.data(), view_.bytes());
  }

 private:
  Aligned(const TensorView& view, Stream& stream) : view_{view} {
    const bool aligned = reinterpret_cast<std::uintptr_t>(view.data()) % operand_alignment == 0;
    if (!aligned) beside_ = inside(stream).allocate(view.bytes());
  }

  TensorView view_;
  Buffer beside_;
};

}  // namespace lockstep::ops::cuda
