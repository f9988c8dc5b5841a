#include "apps/lockstep-bench/bandwidth.hpp"

#include <cstring>

#include "sync/reduce/arithmetic.hpp"

namespace lockstep::bench {

Bandwidth::Bandwidth(std::int64_t bytes) : memory_{Tensor::zeros(DType::f32, {2, bytes / 8 + 1})} {}

void Bandwidth::copy(std::int64_t bytes) {
  const auto half = static_cast<std::size_t>(bytes / 2);
  std::byte* const a = memory_.view().data();
  std::byte* const b = a + memory_.view().bytes() / 2;
  std::memcpy(a, b, half);
  std::memcpy(b, a, half);
}

void Bandwidth::add(std::int64_t bytes) {
  const TensorView arrays = memory_.view();
  detail::tree_sum_in_place({arrays.data(), static_cast<std::int64_t>(arrays.bytes() / 2), 2}, arrays.dtype(),
                            bytes / 8, {}, 0, 2);
}

}  // namespace lockstep::bench
