// Operands for the tests of the kernels.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops {

inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// The reference, and the library's kernels where this build has them (the reference again where not).
inline std::vector<std::unique_ptr<Kernels>> all_kernels() {
  std::vector<std::unique_ptr<Kernels>> all;
  all.push_back(make_kernels(Kernels::Choice::reference));
  all.push_back(make_kernels(Kernels::Choice::automatic));
  return all;
}

inline Tensor f32(std::initializer_list<float> values, Shape shape) {
  return Tensor::from(values, std::move(shape));
}
inline Tensor f64(std::initializer_list<double> values, Shape shape) {
  return Tensor::from(values, std::move(shape));
}
inline Tensor i32(std::initializer_list<std::int32_t> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

/// Element i is value(i), rounded to the type.
template <class Fn>
Tensor generate(DType dtype, Shape shape, Fn&& value) {
  const Tensor made = Tensor::zeros(dtype, std::move(shape));
  for (std::int64_t i = 0; i < made.count(); ++i)
    if (dtype == DType::bf16)
      made.view().elements<BFloat16>()[static_cast<std::size_t>(i)] = BFloat16{static_cast<float>(value(i))};
    else if (dtype == DType::f32)
      made.view().elements<float>()[static_cast<std::size_t>(i)] = static_cast<float>(value(i));
    else
      made.view().elements<double>()[static_cast<std::size_t>(i)] = value(i);
  return made;
}

/// Numbers in [-1, 1), the same for the same seed.
inline Tensor noise(DType dtype, Shape shape, std::uint64_t seed) {
  const RandomStream stream{seed, RandomStream::Purpose::initial_value, 0};
  return generate(dtype, std::move(shape),
                  [&](std::int64_t i) { return 2 * stream.uniform(static_cast<std::uint64_t>(i)) - 1; });
}

inline Tensor filled(DType dtype, Shape shape, double value) {
  return generate(dtype, std::move(shape), [&](std::int64_t) { return value; });
}

inline std::vector<double> in_double(const Tensor& t) {
  if (t.dtype() == DType::f64) return t.to_vector<double>();
  if (t.dtype() == DType::bf16) {
    const auto values = t.to_vector<BFloat16>();
    return {values.begin(), values.end()};
  }
  const auto values = t.to_vector<float>();
  return {values.begin(), values.end()};
}

/// The matrix in rows `stride` elements apart, with NaNs between them.
inline Tensor padded(const Tensor& matrix, std::int64_t stride) {
  const std::int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  const Tensor wide = filled(matrix.dtype(), {rows, stride}, not_a_number);
  for (std::int64_t row = 0; row < rows; ++row)
    copy(matrix.view().reshaped({rows * columns}).slice(row * columns, columns),
         wide.view().reshaped({rows * stride}).slice(row * stride, columns));
  return wide;
}

/// And back. The padding must be what it was, or zeros.
inline Tensor without_padding(const Tensor& wide, std::int64_t columns) {
  const std::int64_t rows = wide.shape()[0], stride = wide.shape()[1];
  const Tensor matrix = Tensor::zeros(wide.dtype(), {rows, columns});
  for (std::int64_t row = 0; row < rows; ++row) {
    const TensorView all = wide.view().reshaped({rows * stride}).slice(row * stride, stride);
    copy(all.slice(0, columns), matrix.view().reshaped({rows * columns}).slice(row * columns, columns));
    for (const double each : in_double(Tensor::copy_of(all.slice(columns, stride - columns))))
      if (!std::isnan(each) && each != 0) throw std::runtime_error{"padding was written"};
  }
  return matrix;
}

inline bool same_bits(const TensorView& a, const TensorView& b) {
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

/// What the InvalidArgument says that `call` throws.
template <class Fn>
std::string refusal(Fn&& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace lockstep::ops
