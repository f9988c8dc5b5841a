// Environment variables by which a user changes the bits of cuBLAS's products. They belong to the fingerprint of the
// kernels. Without CUDA, so that its test needs none.
#pragma once

#include <functional>
#include <string>

#include "core/base/excerpt.hpp"

namespace lockstep::ops::cuda {

/// ", NVIDIA_TF32_OVERRIDE=1" for each one that is set, in a fixed order. So the fingerprint stays what it was where
/// none is. `variable` is getenv.
inline std::string arithmetic_variables(const std::function<const char*(const char*)>& variable) {
  std::string set;
  for (const char* const name :
       {"CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATE_DOUBLE_PRECISION", "CUBLAS_EMULATION_STRATEGY",
        "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT", "NVIDIA_TF32_OVERRIDE"})
    if (const char* const value = variable(name)) set += std::string{", "} + name + "=" + excerpt(value);
  return set;
}

}  // namespace lockstep::ops::cuda
