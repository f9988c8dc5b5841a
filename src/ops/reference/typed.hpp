// Views as memory of a C++ type.
#pragma once

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::ops {

/// Calls `fn` with a value of the C++ type of `dtype`. The checks have made sure that it is f32 or f64.
template <class Fn>
auto with_type(DType dtype, Fn&& fn) {
  return dtype == DType::f32 ? fn(float{}) : fn(double{});
}

template <class T>
T* data(const TensorView& view) {
  return view.elements<T>().data();
}

}  // namespace lockstep::ops
