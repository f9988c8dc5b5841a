// Exponentials and their like, for the loops of the host and of a GPU.
#pragma once

#include <cmath>

#include "core/base/host_device.hpp"
#include "core/base/portable_functions.hpp"

namespace lockstep::ops {

/// Those of the C library, or of CUDA in a GPU's code. Their low-order bits may depend on the library's version and on
/// the processor.
struct LibraryFunctions {
  template <class T>
  LOCKSTEP_HOST_DEVICE static T exp(T x) {
    return std::exp(x);
  }
  template <class T>
  LOCKSTEP_HOST_DEVICE static T log(T x) {
    return std::log(x);
  }
  template <class T>
  LOCKSTEP_HOST_DEVICE static T tanh(T x) {
    return std::tanh(x);
  }
};

/// lockstep's own, for the host, which have the same bits everywhere. Those of float are the ones of double, rounded.
struct PortableFunctions {
  template <class T>
  static T exp(T x) {
    return static_cast<T>(portable::exp(static_cast<double>(x)));
  }
  template <class T>
  static T log(T x) {
    return static_cast<T>(portable::log(static_cast<double>(x)));
  }
  template <class T>
  static T tanh(T x) {
    return static_cast<T>(portable::tanh(static_cast<double>(x)));
  }
};

}  // namespace lockstep::ops
