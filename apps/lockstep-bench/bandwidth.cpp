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

void Bandwidth::copy(std::int64_t bytes) {
  const auto half = static_cast<std::size_t>(bytes / 2);
  std::byte* const a = arrays_.own();
  std::byte* const b = a + half;
  std::memcpy(a, b, half);
  std::memcpy(b, a, half);
}

void Bandwidth::write(std::span<const std::byte> tensor) {
  std::memcpy(arrays_.own(), tensor.data(), tensor.size());
}

void Bandwidth::add(std::int64_t bytes) {
  constexpr std::int64_t line = 64, element = sizeof(float);
  const auto begin_of = [&](int place) { return bytes * place / arrays_.count() / line * line; };
  const std::int64_t begin = begin_of(arrays_.place());
  const bool is_last = arrays_.place() + 1 == arrays_.count();
  const std::int64_t end = is_last ? bytes : begin_of(arrays_.place() + 1);
  detail::tree_sum_in_place({arrays_.first() + begin, arrays_.stride(), arrays_.count()}, DType::f32,
                            (end - begin) / element, {}, 0, arrays_.count());
}

double read_all(std::span<const double> numbers) {
  return sum_of(numbers);
}
float read_all(std::span<const float> numbers) {
  return sum_of(numbers);
}

}  // namespace lockstep::bench
