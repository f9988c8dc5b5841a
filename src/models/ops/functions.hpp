// The choice of what computes exponentials and their like on the host.
#pragma once

#include <lockstep/models/ops/kernels.hpp>

#include "core/base/portable_functions.hpp"
#include "models/ops/elementary_functions.hpp"

namespace lockstep::ops {

using detail::Functions;

/// Those of the kernels, for what is computed beside them, such as initial values.
inline Functions functions_of(const Kernels& kernels) {
  return kernels.is_portable() ? Functions::portable : Functions::of_library;
}

/// Calls body<F>() with LibraryFunctions or PortableFunctions.
template <class Body>
auto with_functions(Functions functions, Body&& body) {
  return functions == Functions::portable ? body.template operator()<PortableFunctions>()
                                          : body.template operator()<LibraryFunctions>();
}

}  // namespace lockstep::ops
