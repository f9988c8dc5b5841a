// From a dtype known at run time to one of the types that kernels compute with.
#pragma once

#include <fmt/format.h>

#include <lockstep/base/dtype.hpp>
#include <lockstep/base/error.hpp>

namespace lockstep::ops {

/// Calls `body.template operator()<T>()` for the C++ type of `dtype`. InvalidArgument unless it is f32 or f64.
template <class Body>
auto with_type(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body.template operator()<float>();
  if (dtype == DType::f64) return body.template operator()<double>();
  throw InvalidArgument{fmt::format("no kernel computes with {}; expected f32 or f64", name_of(dtype))};
}

/// The same, also for bf16, as which activations may be stored.
template <class Body>
auto with_stored_type(DType dtype, Body&& body) {
  if (dtype == DType::bf16) return body.template operator()<BFloat16>();
  return with_type(dtype, body);
}

/// Calls `body.template operator()<A, B>()` for the types of `a` and `b`, of which the latter may be bf16 beside f32.
template <class Body>
auto with_stored_types(DType a, DType b, Body&& body) {
  if (a == DType::f32 && b == DType::bf16) return body.template operator()<float, BFloat16>();
  return with_stored_type(a, [&]<class T>() { return body.template operator()<T, T>(); });
}

}  // namespace lockstep::ops
