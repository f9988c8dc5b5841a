// Whether two views share memory.
#pragma once

#include <cstddef>
#include <functional>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep {

/// Empty views overlap nothing.
inline bool overlap(const TensorView& a, const TensorView& b) {
  // std::less orders pointers into different allocations; the operators need not.
  const std::less<const std::byte*> before;
  return a.bytes() > 0 && b.bytes() > 0 && before(a.data(), b.data() + b.bytes()) &&
         before(b.data(), a.data() + a.bytes());
}

}  // namespace lockstep
