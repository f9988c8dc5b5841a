// Checks of layers' options.
#pragma once

#include <fmt/format.h>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/error.hpp>

namespace lockstep::nn {

/// InvalidArgument for weights of a type that no kernels compute with.
inline void require_float_weights(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InvalidArgument{fmt::format("weights of {} are not supported; expected f32 or f64", name_of(dtype))};
}

}  // namespace lockstep::nn
