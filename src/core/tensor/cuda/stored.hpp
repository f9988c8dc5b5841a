// How kernels compute on elements that are stored as bf16: they are widened where they are read, and results are
// rounded to nearest, ties to even, where they are written, as on the host. Elements of f32 and f64 stay what they are.
#pragma once

#include <type_traits>

#include <lockstep/core/base/dtype.hpp>

#include "core/base/host_device.hpp"
#include "core/tensor/computed.hpp"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace lockstep::detail::cuda {

template <class T>
LOCKSTEP_HOST_DEVICE computed_t<T> wide(const T& x) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, BFloat16>)
    return __bfloat162float(__ushort_as_bfloat16(x.bits));
  else
#endif
    return x;
}

template <class T>
LOCKSTEP_HOST_DEVICE void store(T& to, computed_t<T> x) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, BFloat16>)
    to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  else
#endif
    to = static_cast<T>(x);
}

}  // namespace lockstep::detail::cuda
