#include "models/nn/initial_values.hpp"

#include <cmath>
#include <numbers>
#include <span>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>

#include "core/base/element_count.hpp"
#include "models/nn/layer_checks.hpp"

namespace lockstep::nn {
namespace {

template <class Real, class Draw>
void fill(std::span<Real> values, Draw&& draw) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Real>(draw(i));
}

/// Element i is `draw(i)`, a double, rounded to `dtype`.
template <class Draw>
Tensor make_weight(DType dtype, const Shape& shape, Draw&& draw) {
  const Tensor weight = Tensor::zeros(dtype, shape);
  if (dtype == DType::f64) {
    fill(weight.view().elements<double>(), draw);
  } else {
    fill(weight.view().elements<float>(), draw);
  }
  return weight;
}

double glorot_limit(const Shape& shape) {
  const std::int64_t positions = element_count({shape.begin(), shape.end() - 2});
  const auto inputs = static_cast<double>(*(shape.end() - 2)), outputs = static_cast<double>(shape.back());
  return std::sqrt(6 / (static_cast<double>(positions) * (inputs + outputs)));
}

double normal(std::uint64_t bits, ops::Functions functions) {
  const double u = (static_cast<double>(bits >> 32) + 1) * 0x1p-32;
  const double v = static_cast<double>(bits & 0xffffffff) * 0x1p-32;
  if (functions == ops::Functions::portable) return std::sqrt(-2 * portable::log(u)) * portable::cos_pi(2 * v);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace

Tensor glorot_uniform(DType dtype, const Shape& shape, std::uint64_t seed, std::uint64_t ordinal) {
  require_float_weights(dtype);
  if (shape.size() < 2)
    throw InvalidArgument{fmt::format("initial values of shape {}; expected [..., inputs, outputs]", describe(shape))};
  const RandomStream stream{seed, RandomStream::Purpose::initial_value, ordinal};
  const double limit = glorot_limit(shape);
  return make_weight(dtype, shape, [&](std::uint64_t i) { return (2 * stream.uniform(i) - 1) * limit; });
}

Tensor glorot_uniform(DType dtype, std::int64_t inputs, std::int64_t outputs, std::uint64_t seed,
                      std::uint64_t ordinal) {
  return glorot_uniform(dtype, {inputs, outputs}, seed, ordinal);
}

Tensor normal_values(DType dtype, const Shape& shape, double stddev, std::uint64_t seed, std::uint64_t ordinal,
                     ops::Functions functions) {
  require_float_weights(dtype);
  if (!(stddev >= 0) || std::isinf(stddev))
    throw InvalidArgument{fmt::format("a standard deviation of {}; expected a number from 0 on", stddev)};
  const RandomStream stream{seed, RandomStream::Purpose::initial_value, ordinal};
  return make_weight(dtype, shape, [&](std::uint64_t i) { return stddev * normal(stream.bits(i), functions); });
}

}  // namespace lockstep::nn
