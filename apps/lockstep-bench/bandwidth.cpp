#include "apps/lockstep-bench/bandwidth.hpp"

#include <array>
#include <cstring>
#include <numeric>

#include "core/base/wide_loop.hpp"
#include "sync/reduce/arithmetic.hpp"

namespace lockstep::bench {
namespace {

/// So many sums that no addition waits for another one.
template <class T>
T sum_of(std::span<const T> numbers) {
  std::array<T, 256 / sizeof(T)> sums{};
  const std::size_t whole = numbers.size() / sums.size() * sums.size();
  widest_loop([&, numbers] {
    auto all = sums;
    for (std::size_t i = 0; i < whole; i += all.size())
      for (std::size_t lane = 0; lane < all.size(); ++lane) all[lane] += numbers[i + lane];
    sums = all;
  });
  const auto rest = numbers.subspan(whole);
  return std::accumulate(rest.begin(), rest.end(), std::accumulate(sums.begin(), sums.end(), T{0}));
}

}  // namespace

Bandwidth::Bandwidth(std::int64_t bytes) : memory_{Tensor::zeros(DType::f32, {2, bytes / 8 + 1})} {}

void Bandwidth::copy(std::int64_t bytes) {
  const auto half = static_cast<std::size_t>(bytes / 2);
  std::byte* const a = memory_.view().data();
  std::byte* const b = a + memory_.view().bytes() / 2;
  std::memcpy(a, b, half);
  std::memcpy(b, a, half);
}

void Bandwidth::add(std::int64_t bytes) {
  const TensorView arrays = memory_.view();
  detail::tree_sum_in_place({arrays.data(), static_cast<std::int64_t>(arrays.bytes() / 2), 2}, arrays.dtype(),
                            bytes / 8, {}, 0, 2);
}

double read_all(std::span<const double> numbers) {
  return sum_of(numbers);
}
float read_all(std::span<const float> numbers) {
  return sum_of(numbers);
}

}  // namespace lockstep::bench
