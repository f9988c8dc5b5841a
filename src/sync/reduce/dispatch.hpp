// From a dtype known at run time to an element type known at compile time, and how elements of that type are summed.
#pragma once

#include <type_traits>

#include <fmt/format.h>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/error.hpp>

namespace lockstep {

/// Calls `body.template operator()<T>()` for the element type of `dtype`. InvalidArgument if `dtype` is not a DType.
template <class Body>
void with_element_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<float>();
    case DType::f64: return body.template operator()<double>();
    case DType::f16: return body.template operator()<Half>();
    case DType::bf16: return body.template operator()<BFloat16>();
    case DType::i32: return body.template operator()<std::int32_t>();
    case DType::i64: return body.template operator()<std::int64_t>();
    case DType::u8: return body.template operator()<std::uint8_t>();
  }
  throw InvalidArgument{fmt::format("element type {}: expected one of DType's", static_cast<int>(dtype))};
}

inline bool is_16_bit_float(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

/// The type in which T is summed: a sum of 16-bit floats is rounded once, at its end.
template <class T>
using sum_t = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

/// a + b; integers wrap around.
template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

/// a - b; integers wrap around.
template <class T>
T difference_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) - static_cast<U>(b)));
  } else {
    return a - b;
  }
}

}  // namespace lockstep
