// Numbers that are not exact, so that the order of a sum shows.
#pragma once

#include <cstdint>
#include <utility>

#include <lockstep/base/philox.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::test {

inline void set(const TensorView& view, std::int64_t i, double value) {
  if (view.dtype() == DType::f64) {
    view.elements<double>()[static_cast<std::size_t>(i)] = value;
  } else {
    view.elements<float>()[static_cast<std::size_t>(i)] = static_cast<float>(value);
  }
}

/// Numbers in [-1, 1), the same for the same seed.
inline void fill_noise(const TensorView& view, std::uint64_t seed) {
  const RandomStream stream{seed, RandomStream::Purpose::initial_value, 0};
  for (std::int64_t i = 0; i < view.count(); ++i) set(view, i, 2 * stream.uniform(static_cast<std::uint64_t>(i)) - 1);
}

inline Tensor noise(DType dtype, Shape shape, std::uint64_t seed) {
  const Tensor made = Tensor::zeros(dtype, std::move(shape));
  fill_noise(made.view(), seed);
  return made;
}

}  // namespace lockstep::test
