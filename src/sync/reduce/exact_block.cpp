#include "sync/reduce/exact_block.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <lockstep/sync/reduce/exact_sum.hpp>

#include "core/base/wide_loop.hpp"

namespace lockstep::detail {
namespace {

using Doubts = std::array<std::uint8_t, exact_block>;

/// a + b, and what was lost.
template <class T>
T two_sum(T a, T b, T& lost) {
  const T sum = a + b, of_b = sum - a;
  lost = (a - (sum - of_b)) + (b - of_b);
  return sum;
}

template <class T>
void add_two(const T* __restrict a, const T* __restrict b, std::int64_t count, T* __restrict sum,
             std::uint8_t* __restrict doubts) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
  for (std::int64_t i = 0; i < count; ++i) doubts[i] = sum[i] != sum[i] ? 1 : 0;  // any NaN, in place of the same one
}

/// By how much a sum may differ from the exact one, of which it has lost numbers whose magnitudes have the sum `lost`.
double bound(double sum, double lost) {
  const double of_sum = lost == 0 ? 0 : 0x1p-51;
  return 2 * lost + of_sum * std::abs(sum);
}

void add_all(const float* pieces, std::int64_t stride, int parts, std::int64_t count, float* __restrict sum,
             std::uint8_t* __restrict doubts) {
  std::array<double, exact_block> total, all_lost{};
  for (std::int64_t i = 0; i < count; ++i) total[i] = static_cast<double>(pieces[i]);
  for (int part = 1; part < parts; ++part) {
    const float* const more = pieces + part * stride;
    for (std::int64_t i = 0; i < count; ++i) {
      double lost = 0;
      total[i] = two_sum(total[i], static_cast<double>(more[i]), lost);
      all_lost[i] += std::abs(lost);  // a NaN stays
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double most = bound(total[i], all_lost[i]);
    sum[i] = static_cast<float>(total[i]);
    const float difference = static_cast<float>(total[i] + most) - static_cast<float>(total[i] - most);
    doubts[i] = difference == 0 ? 0 : 1;
  }
}

void add_all(const double* pieces, std::int64_t stride, int parts, std::int64_t count, double* __restrict sum,
             std::uint8_t* __restrict doubts) {
  std::array<double, exact_block> rest{}, all_lost{};
  std::copy_n(pieces, count, sum);
  for (int part = 1; part < parts; ++part) {
    const double* const more = pieces + part * stride;
    for (std::int64_t i = 0; i < count; ++i) {
      double lost = 0, lost_again = 0;
      sum[i] = two_sum(sum[i], more[i], lost);
      rest[i] = two_sum(rest[i], lost, lost_again);
      all_lost[i] += std::abs(lost_again);
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double most = bound(rest[i], all_lost[i]);
    const double difference = (sum[i] + (rest[i] + most)) - (sum[i] + (rest[i] - most));
    doubts[i] = difference == 0 ? 0 : 1;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double rounded = sum[i] + rest[i];
    sum[i] = rest[i] == 0 ? sum[i] : rounded;  // -0 + 0 is 0
  }
}

}  // namespace

Arithmetic arithmetic_now() {
  const volatile double one = 1, half = 0x1p-53, last = 0x1p-52, small = std::numeric_limits<double>::min();
  const volatile double denormal = small / 2;
  return one + half == one && (one + last) + half == one + 2 * last && denormal + 0.0 != 0 &&
                 denormal + denormal == small
             ? Arithmetic::as_ieee_says
             : Arithmetic::otherwise;
}

template <class T>
void exact_sum_of_block(const T* pieces, std::int64_t stride, int parts, std::int64_t count, Arithmetic arithmetic,
                        T* sum) {
  if (parts == 1) return (void)std::copy_n(pieces, count, sum);
  Doubts doubts;
  if (arithmetic == Arithmetic::as_ieee_says) {
    widest_loop([&] {
      if (parts == 2) return add_two(pieces, pieces + stride, count, sum, doubts.data());
      add_all(pieces, stride, parts, count, sum, doubts.data());
    });
  } else {
    doubts.fill(1);
  }
  const auto next = [&](std::int64_t from) {
    const void* const found = std::memchr(doubts.data() + from, 1, static_cast<std::size_t>(count - from));
    return found ? static_cast<const std::uint8_t*>(found) - doubts.data() : count;
  };
  for (std::int64_t i = next(0); i < count; i = next(i + 1)) {
    ExactSum<T> exact;
    for (int part = 0; part < parts; ++part) exact.add(pieces[part * stride + i]);
    sum[i] = exact.value();
  }
}

template void exact_sum_of_block(const float*, std::int64_t, int, std::int64_t, Arithmetic, float*);
template void exact_sum_of_block(const double*, std::int64_t, int, std::int64_t, Arithmetic, double*);

}  // namespace lockstep::detail
