// Exact sums: hand-picked numbers that other sums get wrong, in several orders and parts. exact-sums, a script,
// compares many more with Python's fractions.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/exact_sum.hpp>

#include "reduce_support.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

template <class T>
ExactSum<T> exact_sum_of(std::span<const T> numbers) {
  ExactSum<T> sum;
  sum.add(numbers);
  return sum;
}

template <class T>
ExactSum<T> exact_sum_of(const std::vector<T>& numbers) {
  return exact_sum_of(std::span<const T>{numbers});
}

/// Of the numbers in any order.
template <class T>
T exact_value(std::vector<T> numbers) {
  const auto words = exact_sum_of(numbers).words();
  std::ranges::sort(numbers, [](T a, T b) { return std::pair{a, std::signbit(b)} < std::pair{b, std::signbit(a)}; });
  ExactSum<T> one_by_one;
  for (const T number : numbers) one_by_one.add(number);
  CHECK(one_by_one.words() == words);
  return one_by_one.value();
}

template <class T>
bool are_same(T a, T b) {
  return same_bits(std::vector{a}, std::vector{b});
}

/// As many numbers of many magnitudes as go through the bins of long spans.
template <class T>
std::vector<T> many_numbers(std::size_t count) {
  std::mt19937_64 draw{7};
  std::vector<T> numbers;
  for (std::size_t i = 0; i < count; ++i)
    numbers.push_back(std::ldexp(static_cast<T>(draw() % 8191) - 4095, static_cast<int>(draw() % 100) - 50));
  return numbers;
}

}  // namespace

TEMPLATE_TEST_CASE("an exact sum is rounded once", "", float, double) {
  using Limits = std::numeric_limits<TestType>;
  const TestType one = 1, half = Limits::epsilon() / 2, tiny = Limits::denorm_min(), large = Limits::max();
  CHECK(exact_value<TestType>({}) == 0);
  CHECK(exact_value<TestType>({one, large, -large}) == one);
  CHECK(exact_value<TestType>({one, half}) == one);                                        // a tie goes to even
  CHECK(exact_value<TestType>({one, half, tiny}) == one + 2 * half);                       // above a tie
  CHECK(exact_value<TestType>({one, half, -tiny}) == one);                                 // below one
  CHECK(exact_value<TestType>({one + 2 * half, half}) == one + 4 * half);                  // up to even
  CHECK(exact_value<TestType>({-one, -half, -tiny}) == -one - 2 * half);                   // either sign
  CHECK(exact_value<TestType>({2 - 2 * half, half}) == 2);                                 // to the next exponent
  CHECK(exact_value<TestType>({large, large, -large, -large, tiny}) == tiny);              // an overflow comes back
  CHECK(exact_value<TestType>({large, std::ldexp(large, -Limits::digits - 1)}) == large);  // too little to overflow
  CHECK(exact_value<TestType>({tiny, tiny, tiny}) == 3 * tiny);                            // denormal, and exact
  CHECK(exact_value<TestType>({Limits::min(), -tiny}) == Limits::min() - tiny);            // down to denormals
}

TEMPLATE_TEST_CASE("an exact sum has the infinities, NaNs and zeros of its numbers", "", float, double) {
  using Limits = std::numeric_limits<TestType>;
  const TestType infinity = Limits::infinity(), nan = Limits::quiet_NaN(), large = Limits::max(), zero = 0, one = 1;
  CHECK(exact_value<TestType>({one, infinity, -large}) == infinity);
  CHECK(exact_value<TestType>({-infinity, -infinity, one}) == -infinity);
  CHECK(std::isnan(exact_value<TestType>({infinity, one, -infinity})));
  CHECK(std::isnan(exact_value<TestType>({one, nan})));
  const TestType half_a_last_bit = std::ldexp(one, Limits::max_exponent - Limits::digits - 1);
  CHECK(exact_value<TestType>({large, half_a_last_bit}) == infinity);
  CHECK(exact_value<TestType>({large, half_a_last_bit, -Limits::denorm_min()}) == large);
  CHECK(exact_value<TestType>({large, large}) == infinity);
  CHECK(exact_value<TestType>({-large, -large}) == -infinity);
  CHECK(are_same(exact_value<TestType>({}), zero));
  CHECK(are_same(exact_value<TestType>({-zero, -zero}), -zero));
  CHECK(are_same(exact_value<TestType>({-zero, zero}), zero));
  CHECK(are_same(exact_value<TestType>({one, -one}), zero));
  CHECK(are_same(exact_value<TestType>({one, -zero, -one}), zero));
}

TEMPLATE_TEST_CASE("a span is added up as its numbers are, one by one, whatever is among them", "", float, double) {
  using Limits = std::numeric_limits<TestType>;
  for (const std::size_t count : {255U, 256U, 1024U, 1040U, 3001U})
    for (const TestType special : {TestType{1}, TestType{0}, -TestType{0}, Limits::denorm_min(), -Limits::max(),
                                   Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
      CAPTURE(count, special);
      std::vector<TestType> of_like_size(count, 1), of_many_sizes = many_numbers<TestType>(count);
      for (auto* const numbers : {&of_like_size, &of_many_sizes}) {
        (*numbers)[count / 2] = special;
        ExactSum<TestType> one_by_one;
        for (const TestType number : *numbers) one_by_one.add(number);
        CHECK(exact_sum_of(*numbers).words() == one_by_one.words());
      }
    }
}

TEMPLATE_TEST_CASE("the words of an exact sum do not depend on orders and parts", "", float, double) {
  auto numbers = many_numbers<TestType>(10'000);
  for (const TestType special : {TestType{0}, -TestType{0}, std::numeric_limits<TestType>::denorm_min()})
    numbers.insert(numbers.begin() + 5000, special);
  const auto words = exact_sum_of(numbers).words();
  std::mt19937_64 draw{3};
  for (const std::size_t parts : {1U, 2U, 3U, 17U, 5000U}) {
    CAPTURE(parts);
    std::ranges::shuffle(numbers, draw);
    ExactSum<TestType> joined;
    typename ExactSum<TestType>::Words sum_of_words{};
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t first = numbers.size() * part / parts, last = numbers.size() * (part + 1) / parts;
      const auto some = exact_sum_of(std::span<const TestType>{numbers}.subspan(first, last - first));
      joined.add(some);
      const auto more = some.words();
      for (std::size_t i = 0; i < more.size(); ++i) sum_of_words[i] += more[i];
    }
    CHECK(joined.words() == words);
    CHECK(ExactSum<TestType>::of_words(sum_of_words).words() == words);
    CHECK(are_same(ExactSum<TestType>::of_words(sum_of_words).value(), exact_sum_of(numbers).value()));
  }
}

TEMPLATE_TEST_CASE("the words of 2^31 exact sums can be added up", "", float, double) {
  const TestType large = std::numeric_limits<TestType>::max(), tiny = std::numeric_limits<TestType>::denorm_min();
  constexpr std::int64_t ranks = std::int64_t{1} << 31;
  for (const auto& numbers : {std::vector{large, tiny}, {-large, -tiny}, {-tiny}, {large, -tiny}}) {
    auto words = exact_sum_of(numbers).words();
    for (std::int64_t& word : words) REQUIRE_FALSE(__builtin_mul_overflow(word, ranks, &word));
    auto sum = ExactSum<TestType>::of_words(words);
    // All but one again, by doubling.
    ExactSum<TestType> twice = exact_sum_of(numbers);
    for (int i = 0; i < 31; ++i) twice.add(ExactSum<TestType>{twice});
    CHECK(sum.words() == twice.words());
  }
}

TEMPLATE_TEST_CASE("an exact sum does not depend on how the processor rounds", "", float, double) {
  std::fenv_t before;
  REQUIRE(std::fegetenv(&before) == 0);
  using Limits = std::numeric_limits<TestType>;
  auto numbers = many_numbers<TestType>(2048);
  switch (GENERATE(0, 1, 2, 3)) {
    case 0: break;
    case 1:
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = i % 2 == 0 ? Limits::min() : 3 * Limits::denorm_min();
      break;
    case 2:  // of like size
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = 1 + static_cast<TestType>(i % 7) * Limits::epsilon();
      numbers.back() = Limits::epsilon();
      break;
    case 3:  // of like size, and so large that their sum may overflow if each is rounded up
      std::ranges::fill(numbers, -std::nextafter(std::ldexp(TestType{1}, Limits::max_exponent - 10), TestType{0}));
      break;
  }
  const auto expected = exact_sum_of(numbers).words();
  const TestType value = exact_sum_of(numbers).value();
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    zero_denormals(0x8040);
    const auto sum = exact_sum_of(numbers);
    const TestType again = sum.value();
    std::fesetenv(&before);
    CAPTURE(mode);
    CHECK(sum.words() == expected);
    CHECK(are_same(again, value));
  }
}

TEMPLATE_TEST_CASE("an exact sum of more numbers than may wait for their carries is exact", "", float, double) {
  // In each block one is so small that the block goes into bins, where the others fill all bits.
  constexpr int shifts = sizeof(TestType) == 4 ? 16 : 32;  // within a bin
  const auto largest_of_bin = std::nextafter(std::ldexp(TestType{1}, shifts + 1), TestType{0});
  std::vector<TestType> numbers((std::size_t{1} << 22) + 16384, largest_of_bin);
  for (std::size_t i = 0; i < numbers.size(); i += 1024) numbers[i] = std::numeric_limits<TestType>::denorm_min();
  ExactSum<TestType> expected = exact_sum_of(std::span<const TestType>{numbers}.first(16384)), block = expected;
  for (int i = 0; i < 8; ++i) block.add(ExactSum<TestType>{block});
  expected.add(block);
  CHECK(exact_sum_of(numbers).words() == expected.words());
}

TEST_CASE("an exact sum has no negative counts") {
  auto words = ExactSum<double>{}.words();
  words.back() = -1;
  CHECK_THROWS_WITH(ExactSum<double>::of_words(words), "word 71 of an exact sum is -1: expected a count");
}
