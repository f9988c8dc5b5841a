// Numbers that are not exact, so that the order of a sum shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::test {

/// Fills `elements` with numbers in [-1, 1), the same for the same seed, and of more bits than an element has, so that
/// their sums are rounded. An f32 is the f64, rounded.
template <class Real>
void fill_noise(std::span<Real> elements, std::uint64_t seed) {
  std::vector<std::uint32_t> words(2 * elements.size());
  RandomStream{seed, RandomStream::Purpose::initial_value, 0}.words(0, words);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const double fraction = (words[2 * i] * 0x1p-32 + words[2 * i + 1]) * 0x1p-32;
    elements[i] = static_cast<Real>(2 * fraction - 1);
  }
}

inline void fill_noise(const TensorView& view, std::uint64_t seed) {
  view.dtype() == DType::f64 ? fill_noise(view.elements<double>(), seed) : fill_noise(view.elements<float>(), seed);
}

inline Tensor noise(DType dtype, Shape shape, std::uint64_t seed) {
  const Tensor made = Tensor::zeros(dtype, std::move(shape));
  fill_noise(made.view(), seed);
  return made;
}

}  // namespace lockstep::test
