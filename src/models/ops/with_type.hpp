// From a dtype known at run time to one of the types that kernels compute with.
#pragma once

#include <lockstep/core/base/dtype.hpp>

#include "core/tensor/with_type.hpp"

namespace lockstep::ops {

using detail::with_type;

/// As with_type, also for bf16, as which activations may be stored.
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
