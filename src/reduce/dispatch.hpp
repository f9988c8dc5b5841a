// From a dtype known at run time to an element type known at compile time.
#pragma once

#include <fmt/format.h>

#include <lockstep/base/dtype.hpp>
#include <lockstep/base/error.hpp>

namespace lockstep {

/// Calls `body.template operator()<T>()` for the element type of `dtype`. InvalidArgument for types without arithmetic.
template <class Body>
void with_element_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<float>();
    case DType::f64: return body.template operator()<double>();
    case DType::i32: return body.template operator()<std::int32_t>();
    case DType::i64: return body.template operator()<std::int64_t>();
    case DType::u8: return body.template operator()<std::uint8_t>();
    case DType::f16:
    case DType::bf16: break;
  }
  throw InvalidArgument{fmt::format("{} tensors cannot be summed on the host", name_of(dtype))};
}

}  // namespace lockstep
