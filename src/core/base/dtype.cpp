#include <lockstep/core/base/dtype.hpp>

#include "core/base/element_type.hpp"

namespace lockstep {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8: return 1;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64:
    case DType::i64: return 8;
  }
  return 0;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

bool is_floating_point(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f64:
    case DType::f16:
    case DType::bf16: return true;
    case DType::i32:
    case DType::i64:
    case DType::u8: return false;
  }
  return false;
}

}  // namespace lockstep
