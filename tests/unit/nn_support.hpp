// What the tests of layers and models have in common.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/philox.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/strategy/strategy.hpp>

namespace lockstep::nn {

using SharedKernels = std::shared_ptr<const ops::Kernels>;

inline SharedKernels reference() {
  return ops::make_kernels(ops::KernelChoice::reference);
}
inline SharedKernels automatic() {
  return ops::make_kernels(ops::KernelChoice::automatic);
}

inline void set(const TensorView& view, std::int64_t i, double value) {
  if (view.dtype() == DType::f64) {
    view.elements<double>()[static_cast<std::size_t>(i)] = value;
  } else {
    view.elements<float>()[static_cast<std::size_t>(i)] = static_cast<float>(value);
  }
}

inline std::vector<double> in_double(const TensorView& view) {
  if (view.dtype() == DType::f64) return view.to_vector<double>();
  const auto values = view.to_vector<float>();
  return {values.begin(), values.end()};
}

inline void fill(const TensorView& view, double value) {
  for (std::int64_t i = 0; i < view.count(); ++i) set(view, i, value);
}

/// Numbers in [-1, 1), the same for the same seed.
inline void fill_noise(const TensorView& view, std::uint64_t seed) {
  const RandomStream stream{seed, RandomPurpose::initial_value, 0};
  for (std::int64_t i = 0; i < view.count(); ++i) set(view, i, 2 * stream.uniform(static_cast<std::uint64_t>(i)) - 1);
}

inline Tensor noise(DType dtype, Shape shape, std::uint64_t seed) {
  const Tensor made = Tensor::zeros(dtype, std::move(shape));
  fill_noise(made.view(), seed);
  return made;
}

inline bool same_bits(const TensorView& a, const TensorView& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

/// Compares a gradient with central differences of `loss`, element by element of the f64 `values`. How many elements of
/// it are not zero.
inline int require_slopes(const TensorView& values, const TensorView& gradient, double margin,
                          const std::function<double()>& loss, const std::string& what = "values") {
  constexpr double h = 1e-5;
  const std::vector<double> expected = gradient.to_vector<double>();
  REQUIRE(expected.size() == static_cast<std::size_t>(values.count()));
  int nonzero = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double& value = values.elements<double>()[i];
    const double before = value;
    value = before + h;
    const double above = loss();
    value = before - h;
    const double below = loss();
    value = before;
    INFO(what << " element " << i);
    CHECK(expected[i] == Approx((above - below) / (2 * h)).epsilon(0).margin(margin));
    nonzero += expected[i] != 0;
  }
  return nonzero;
}

inline int require_slopes(const Variable& variable, const TensorView& gradient, double margin,
                          const std::function<double()>& loss) {
  return require_slopes(variable.local(), gradient, margin, loss, std::string{variable.name()});
}

}  // namespace lockstep::nn
