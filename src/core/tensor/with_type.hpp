// From a dtype known at run time to one of the types that kernels compute with.
#pragma once

#include <fmt/format.h>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/error.hpp>

namespace lockstep::detail {

/// Calls `body.template operator()<T>()` for the C++ type of `dtype`. InvalidArgument unless it is f32 or f64.
template <class Body>
auto with_type(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body.template operator()<float>();
  if (dtype == DType::f64) return body.template operator()<double>();
  throw InvalidArgument{fmt::format("no kernel computes with {}; expected f32 or f64", name_of(dtype))};
}

}  // namespace lockstep::detail
