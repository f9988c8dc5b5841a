#include "core/tensor/convert.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/wide_loop.hpp"
#include "core/device/device.hpp"
#include "core/device/gpu_backend.hpp"

namespace lockstep::detail {

void widen(const BFloat16* __restrict from, float* __restrict to, std::int64_t count) {
  widest_loop([=] {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
  });
}

void round(const float* __restrict from, BFloat16* __restrict to, std::int64_t count) {
  widest_loop([=] {
    for (std::int64_t i = 0; i < count; ++i) to[i] = BFloat16{from[i]};
  });
}

void convert(const TensorView& from, const TensorView& to) {
  const auto is = [&](DType one, DType other) { return from.dtype() == one && to.dtype() == other; };
  const auto each = [&]<class From, class To>(From, To) {
    std::ranges::transform(from.elements<From>(), to.elements<To>().begin(), [](From x) { return static_cast<To>(x); });
  };
  if (from.count() != to.count())
    throw InvalidArgument{fmt::format("{} cannot be converted to {}", describe(from), describe(to))};
  if (is(DType::f32, DType::bf16))
    return round(from.elements<float>().data(), to.elements<BFloat16>().data(), from.count());
  if (is(DType::bf16, DType::f32))
    return widen(from.elements<BFloat16>().data(), to.elements<float>().data(), from.count());
  if (is(DType::f32, DType::f16)) return each(float{}, Half{});
  if (is(DType::f16, DType::f32)) return each(Half{}, float{});
  throw InvalidArgument{
      fmt::format("{} cannot be converted to {}: expected f32 and a type of 16 bits", describe(from), describe(to))};
}

void convert(const TensorView& from, const TensorView& to, Stream& stream) {
  stream.kind() == DeviceKind::cuda ? gpu_backend().convert(from, to, stream) : convert(from, to);
}

}  // namespace lockstep::detail
