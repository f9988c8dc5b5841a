#include <cmath>
#include <numbers>
#include <span>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/philox.hpp>
#include <lockstep/nn/initial_values.hpp>

#include "checks.hpp"

namespace lockstep::nn {
namespace {

double normal(std::uint64_t bits) {
  const double u = (static_cast<double>(bits >> 32) + 1) * 0x1p-32;
  const double v = static_cast<double>(bits & 0xffffffff) * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

template <class Real>
void fill_normal(std::span<Real> values, double stddev, const RandomStream& stream) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Real>(stddev * normal(stream.bits(i)));
}

}  // namespace

Tensor normal_values(DType dtype, Shape shape, double stddev, std::uint64_t seed, std::uint64_t ordinal) {
  require_float_weights(dtype);
  if (!(stddev >= 0) || std::isinf(stddev))
    throw InvalidArgument{fmt::format("a standard deviation of {}; expected a number from 0 on", stddev)};
  const Tensor values = Tensor::zeros(dtype, std::move(shape));
  const RandomStream stream{seed, RandomPurpose::initial_value, ordinal};
  if (dtype == DType::f64) {
    fill_normal(values.view().elements<double>(), stddev, stream);
  } else {
    fill_normal(values.view().elements<float>(), stddev, stream);
  }
  return values;
}

}  // namespace lockstep::nn
