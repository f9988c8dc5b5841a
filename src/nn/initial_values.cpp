#include <cmath>
#include <span>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/philox.hpp>
#include <lockstep/nn/initial_values.hpp>

namespace lockstep::nn {
namespace {

template <class Real>
void fill_uniform(std::span<Real> values, double limit, const RandomStream& stream) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Real>((2 * stream.uniform(i) - 1) * limit);
}

double glorot_limit(const Shape& shape) {
  const std::int64_t positions = element_count({shape.begin(), shape.end() - 2});
  const auto inputs = static_cast<double>(*(shape.end() - 2)), outputs = static_cast<double>(shape.back());
  return std::sqrt(6 / (static_cast<double>(positions) * (inputs + outputs)));
}

}  // namespace

void require_weights(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InvalidArgument{fmt::format("weights of {} are not supported; expected f32 or f64", name_of(dtype))};
}

Tensor glorot_uniform(DType dtype, const Shape& shape, std::uint64_t seed, std::uint64_t ordinal) {
  require_weights(dtype);
  if (shape.size() < 2)
    throw InvalidArgument{fmt::format("initial values of shape {}; expected [..., inputs, outputs]", to_string(shape))};
  const Tensor weight = Tensor::zeros(dtype, shape);
  const RandomStream stream{seed, RandomPurpose::initial_value, ordinal};
  if (dtype == DType::f64) {
    fill_uniform(weight.view().elements<double>(), glorot_limit(shape), stream);
  } else {
    fill_uniform(weight.view().elements<float>(), glorot_limit(shape), stream);
  }
  return weight;
}

Tensor glorot_uniform(DType dtype, std::int64_t inputs, std::int64_t outputs, std::uint64_t seed,
                      std::uint64_t ordinal) {
  return glorot_uniform(dtype, {inputs, outputs}, seed, ordinal);
}

}  // namespace lockstep::nn
