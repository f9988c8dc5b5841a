// Elements of views of GPU memory.
#pragma once

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::ops::cuda {

inline constexpr DeviceKind here = DeviceKind::cuda;

template <class T>
T* data(const TensorView& view) {
  return reinterpret_cast<T*>(view.data());
}

}  // namespace lockstep::ops::cuda
