// The types that kernels compute with.
#pragma once

#include <type_traits>

#include <lockstep/core/base/dtype.hpp>

namespace lockstep::detail {

/// The type that loops compute with for elements stored as T.
template <class T>
using computed_t = std::conditional_t<std::is_same_v<std::remove_const_t<T>, BFloat16>, float, std::remove_const_t<T>>;

}  // namespace lockstep::detail
