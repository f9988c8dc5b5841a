// Views as memory of a C++ type.
#pragma once

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::ops {

/// Calls `fn` with a value of the C++ type of `dtype`. InvalidArgument unless it is f32 or f64.
template <class Fn>
auto with_type(DType dtype, Fn&& fn) {
  if (dtype == DType::f32) return fn(float{});
  if (dtype == DType::f64) return fn(double{});
  throw InvalidArgument{fmt::format("no kernel computes with {}; expected f32 or f64", name_of(dtype))};
}

template <class T>
T* data(const TensorView& view) {
  return view.elements<T>().data();
}

}  // namespace lockstep::ops
