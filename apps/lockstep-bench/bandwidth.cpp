#include "apps/lockstep-bench/bandwidth.hpp"

#include <cstring>

#include "base/wide_loop.hpp"

namespace lockstep::bench {
namespace {

void add_both(float* __restrict a, float* __restrict b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) a[i] = b[i] = a[i] + b[i];
}

}  // namespace

Bandwidth::Bandwidth(std::int64_t bytes)
    : a_{Tensor::zeros(DType::f32, {bytes / 8 + 1})}, b_{Tensor::zeros(DType::f32, {bytes / 8 + 1})} {}

void Bandwidth::copy(std::int64_t bytes) {
  const auto half = static_cast<std::size_t>(bytes / 2);
  std::memcpy(a_.view().data(), b_.view().data(), half);
  std::memcpy(b_.view().data(), a_.view().data(), half);
}

void Bandwidth::add(std::int64_t bytes) {
  float* const a = a_.view().elements<float>().data();
  float* const b = b_.view().elements<float>().data();
  wide_loop([&] { add_both(a, b, bytes / 8); });
}

}  // namespace lockstep::bench
