// Views as memory of a C++ type.
#pragma once

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::ops {

template <class T>
T* data(const TensorView& view) {
  return view.elements<T>().data();
}

}  // namespace lockstep::ops
