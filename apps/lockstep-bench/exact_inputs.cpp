#include "apps/lockstep-bench/exact_inputs.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep::bench {
namespace {

template <class Body>
void with_float_type(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body.template operator()<float>();
  if (dtype == DType::f64) return body.template operator()<double>();
  throw InvalidArgument{fmt::format("the inputs of a benchmark are f32 or f64, not {}", name_of(dtype))};
}

/// The top 12 of 64 bits that multiplication has mixed (Fibonacci hashing). It must be cheap, since the largest tensors
/// have millions of elements; and it has no period that could hide a misplaced slice.
std::int32_t input(int rank, std::size_t index) {
  constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;  // 2^64 / the golden ratio
  std::uint64_t mixed = (index + 1) * golden;
  mixed = (mixed ^ (mixed >> 32)) * (golden + 2 * static_cast<std::uint64_t>(rank));
  return static_cast<std::int32_t>(mixed >> 52) - 2048;
}

}  // namespace

void fill_input(const TensorView& tensor, int rank) {
  with_float_type(tensor.dtype(), [&]<class T>() {
    std::size_t index = 0;
    for (T& element : tensor.elements<T>()) element = static_cast<T>(input(rank, index++));
  });
}

void fill_sum(const TensorView& tensor, int ranks) {
  with_float_type(tensor.dtype(), [&]<class T>() {
    std::size_t index = 0;
    for (T& element : tensor.elements<T>()) {
      std::int64_t sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += input(rank, index);
      element = static_cast<T>(sum);
      ++index;
    }
  });
}

double largest_difference(const TensorView& result, const TensorView& expected) {
  double largest = 0;
  with_float_type(result.dtype(), [&]<class T>() {
    const auto left = result.elements<T>(), right = expected.elements<T>();
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double difference = std::abs(static_cast<double>(left[i]) - static_cast<double>(right[i]));
      if (!(difference <= largest))
        largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
    }
  });
  return largest;
}

}  // namespace lockstep::bench
