#include "sync/reduce/exact_block.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include <lockstep/sync/reduce/exact_sum.hpp>

#include "core/base/wide_loop.hpp"

namespace lockstep::detail {
namespace {

using Doubts = std::array<std::uint8_t, exact_block>;

/// Whether additions round to nearest, ties to even, and keep denormal numbers: a program may have chosen otherwise.
bool adds_as_ieee_says() {
  const volatile double one = 1, half = 0x1p-53, last = 0x1p-52, small = std::numeric_limits<double>::min();
  const volatile double denormal = small / 2;
  return one + half == one && (one + last) + half == one + 2 * last && denormal + 0.0 != 0 &&
         denormal + denormal == small;
}

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

void add_all(const float* pieces, std::int64_t stride, int parts, std::int64_t count, float* __restrict sum,
             std::uint8_t* __restrict doubts) {
  std::array<double, exact_block> total, all_lost{};
  for (std::int64_t i = 0; i < count; ++i) total[i] = static_cast<double>(pieces[i]);
  for (int part = 1; part < parts; ++part) {
    const float* const more = pieces + part * stride;
    for (std::int64_t i = 0; i < count; ++i) {
      double lost = 0;
      total[i] = two_sum(total[i], static_cast<double>(more[i]), lost);
      all_lost[i] += lost * lost;  // a NaN stays
    }
  }
  for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<float>(total[i]);
  for (std::int64_t i = 0; i < count; ++i) doubts[i] = all_lost[i] == 0 ? 0 : 1;
}

void add_all(const double* pieces, std::int64_t stride, int parts, std::int64_t count, double* __restrict sum,
             std::uint8_t* __restrict doubts) {
  std::array<double, exact_block> rest{}, is_lost{};
  std::copy_n(pieces, count, sum);
  for (int part = 1; part < parts; ++part) {
    const double* const more = pieces + part * stride;
    for (std::int64_t i = 0; i < count; ++i) {
      double lost = 0, lost_again = 0;
      sum[i] = two_sum(sum[i], more[i], lost);
      rest[i] = two_sum(rest[i], lost, lost_again);
      is_lost[i] = lost_again == 0 ? is_lost[i] : 1;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) sum[i] = rest[i] == 0 ? sum[i] : sum[i] + rest[i];  // -0 + 0 is 0
  for (std::int64_t i = 0; i < count; ++i) doubts[i] = is_lost[i] == 0 && sum[i] - sum[i] == 0 ? 0 : 1;
}

}  // namespace

template <class T>
void exact_sum_of_block(const T* pieces, std::int64_t stride, int parts, std::int64_t count, T* sum) {
  if (parts == 1) return (void)std::copy_n(pieces, count, sum);
  Doubts doubts;
  if (adds_as_ieee_says()) {
    wide_loop([&] {
      if (parts == 2) return add_two(pieces, pieces + stride, count, sum, doubts.data());
      add_all(pieces, stride, parts, count, sum, doubts.data());
    });
  } else {
    doubts.fill(1);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (doubts[static_cast<std::size_t>(i)] == 0) continue;
    ExactSum<T> exact;
    for (int part = 0; part < parts; ++part) exact.add(pieces[part * stride + i]);
    sum[i] = exact.value();
  }
}

template void exact_sum_of_block(const float*, std::int64_t, int, std::int64_t, float*);
template void exact_sum_of_block(const double*, std::int64_t, int, std::int64_t, double*);

}  // namespace lockstep::detail
