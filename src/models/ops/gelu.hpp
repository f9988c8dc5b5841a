// GELU in its tanh form, which has tanh(u(x)) in place of the error function, for the loops of the host and of a GPU.
#pragma once

#include "core/base/host_device.hpp"
#include "models/ops/elementary_functions.hpp"

namespace lockstep::ops {

template <class T>
struct GeluConstants {
  static constexpr T scale = static_cast<T>(0.79788456080286535588);  ///< sqrt(2 / pi)
  static constexpr T cubic = static_cast<T>(0.044715);
};

template <class Functions = LibraryFunctions, class T>
LOCKSTEP_HOST_DEVICE T gelu_tanh(T x) {
  return Functions::tanh(GeluConstants<T>::scale * (x + GeluConstants<T>::cubic * x * x * x));
}

template <class Functions = LibraryFunctions, class T>
LOCKSTEP_HOST_DEVICE T gelu_of(T x) {
  return x / T{2} * (T{1} + gelu_tanh<Functions>(x));
}

template <class Functions = LibraryFunctions, class T>
LOCKSTEP_HOST_DEVICE T gelu_derivative(T x) {
  const T t = gelu_tanh<Functions>(x);
  const T u_derivative = GeluConstants<T>::scale * (T{1} + T{3} * GeluConstants<T>::cubic * x * x);
  return (T{1} + t) / T{2} + x / T{2} * (T{1} - t * t) * u_derivative;
}

}  // namespace lockstep::ops
