// Many numbers are added up exactly, a block at a time, in one of two ways. If their exponents are close, their sum is
// computed in doubles, none of which needs rounding within the bounds that fit_doubles checks. All others are added to
// integers of 64 bits, one for a few neighbouring exponents each (after Neal, "Fast exact summation using small and
// large superaccumulators", 2015).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>

#include "core/base/wide_loop.hpp"

namespace lockstep::exact {

/// How a number is made of bits: a sign, an exponent, and a significand without its first bit.
template <class T>
struct Layout {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

  static constexpr int significand_bits = std::numeric_limits<T>::digits;
  static constexpr int sign_and_exponent_bits = 8 * static_cast<int>(sizeof(T)) - significand_bits + 1;
  static constexpr Bits first_bit = Bits{1} << (significand_bits - 1);
  static constexpr Bits fraction_mask = first_bit - 1;
  static constexpr unsigned last_exponent = (1U << (sign_and_exponent_bits - 1)) - 1;  ///< infinities and NaNs
  static constexpr Bits infinity = Bits{last_exponent} << (significand_bits - 1);
  static constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1);

  static unsigned sign_and_exponent(Bits bits) { return static_cast<unsigned>(bits >> (significand_bits - 1)); }

  /// The place of the lowest bit of the significand, in units of the smallest number.
  static std::size_t position(unsigned exponent) { return exponent == 0 ? 0 : exponent - 1; }
};

constexpr std::size_t block_numbers = 1024;
constexpr unsigned carries_of_block = std::bit_width(block_numbers - 1);

/// What decides how a block is added up.
struct Survey {
  unsigned largest, smallest;  ///< exponents, the second one of numbers that are not 0
  std::int64_t negative_zeros;
};

template <class T>
Survey survey_of(std::span<const T> block) {
  using Number = Layout<T>;
  using Magnitude = std::make_signed_t<typename Number::Bits>;  // AVX2 does not compare unsigned ones of 64 bits
  constexpr Magnitude all_ones = std::numeric_limits<Magnitude>::max();
  Magnitude largest = 0, smallest = all_ones, negative_zeros = 0;
  widest_loop([&, block] {
    Magnitude most = 0, least = all_ones, zeros = 0;
    for (const T number : block) {
      const auto bits = std::bit_cast<Magnitude>(number), magnitude = bits & all_ones;
      most = std::max(most, magnitude);
      least = std::min(least, (magnitude - 1) & all_ones);  // 0 becomes the largest
      zeros += bits == std::numeric_limits<Magnitude>::min() ? 1 : 0;
    }
    largest = most, smallest = least, negative_zeros = zeros;
  });
  const auto exponent = [](Magnitude magnitude) {
    return Number::sign_and_exponent(static_cast<typename Number::Bits>(magnitude));
  };
  return {exponent(largest), exponent(smallest == all_ones ? all_ones : smallest + 1), negative_zeros};
}

/// Processors look ahead by themselves, but not while a program reads a block for the second time.
template <class T>
[[gnu::always_inline]] inline void fetch_ahead(const T* numbers, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 64 / sizeof(T)) __builtin_prefetch(numbers + i);
}

// A block has up to 2^c numbers, with exponents from d to e: below 2^(e + 1), and multiples of 2^(d - 23) if they are
// floats, of 2^(d - 52) if they are doubles. A double holds each multiple of a power of two that is at most 2^53 times
// as large.
//
// Floats: a sum of some of them is at most 2^(e + 1 + c). A double holds it if e - d + c + 24 <= 53.
//
// A double is cut in two by adding 1.5 * 2^(e + c), which rounds it to a multiple of 2^(e + c - 52), in the direction
// that the program has chosen, and subtracting it again. A sum of such high parts is at most 2^(e + c + 1), which a
// double holds if it is finite: if e + c + 1 < 1024. What is left, the low part, is at most 2^(e + c - 52), and a sum
// of low parts 2^(e + 2 c - 52). They are multiples of 2^(d - 52), so a double holds them if e - d + 2 c <= 53.
//
// Blocks with denormal numbers or denormal parts do not fit, since a program may have the processor take them for
// zeros.
template <class T>
bool fit_doubles(const Survey& survey) {
  constexpr bool is_double = std::same_as<T, double>;
  constexpr unsigned digits = std::numeric_limits<double>::digits;
  constexpr unsigned room =
      is_double ? digits - 2 * carries_of_block : digits - std::numeric_limits<float>::digits - carries_of_block;
  return survey.smallest >= (is_double ? digits : 1) && survey.largest <= survey.smallest + room &&
         survey.largest + (is_double ? carries_of_block + 1 : 0) < Layout<T>::last_exponent;
}

constexpr std::size_t double_lanes = 16;

/// The sum of a block that fits, in two parts. Its length is a multiple of `double_lanes`.
template <class T>
std::pair<double, double> sum_in_doubles(std::span<const T> block, unsigned largest, const T* next) {
  std::array<double, double_lanes> high{}, low{};
  const auto cut = std::bit_cast<double>(std::uint64_t{largest + carries_of_block} << 52 | std::uint64_t{1} << 51);
  widest_loop([&, block] {
    auto highs = high, lows = low;
    for (std::size_t i = 0; i < block.size(); i += double_lanes) {
      fetch_ahead(next + i, double_lanes);
      for (std::size_t lane = 0; lane < double_lanes; ++lane) {
        const auto number = static_cast<double>(block[i + lane]);
        const double above = std::same_as<T, double> ? (number + cut) - cut : number;
        highs[lane] += above;
        if constexpr (std::same_as<T, double>) lows[lane] += number - above;
      }
    }
    high = highs, low = lows;
  });
  return {std::accumulate(high.begin(), high.end(), 0.0), std::accumulate(low.begin(), low.end(), 0.0)};
}

/// Sums of significands: one for each sign and 32 neighbouring exponents of doubles, or 16 of floats, within which they
/// are shifted. The sums of doubles have two parts, of the low 42 bits and of the others, so that neither overflows
/// before 2^20 numbers.
template <class T>
class Bins {
 public:
  static constexpr std::size_t most_blocks = (std::size_t{1} << 20) / block_numbers;

  /// Of finite numbers.
  void add(std::span<const T> block, const T* next) {
    widest_loop([this, block, next] {
      std::size_t i = 0;
      for (; i + some <= block.size(); i += some) {
        fetch_ahead(next + i, some);
        add_some(block.data() + i);
      }
      if (i == block.size()) return;
      std::array<T, some> rest{};
      std::ranges::copy(block.subspan(i), rest.begin());
      add_some(rest.data());
    });
  }

  /// Calls `body(position, sum, is_negative)` for all sums that are not 0, and leaves zeros.
  template <class Body>
  void empty(Body&& body) {
    for (std::size_t bin = 0; bin < bins; ++bin) {
      Parts all{};
      for (auto& copy : sums_) {
        const auto more = std::bit_cast<Parts>(std::exchange(copy[bin], Sum{}));
        for (std::size_t part = 0; part < parts; ++part) all[part] += more[part] & sum_mask;
      }
      std::size_t position = bin % (bins / 2) * bin_exponents;
      for (const std::uint64_t sum : all) {
        // The lowest bit of a number with exponent e has position e - 1, and one with exponent 0 is written twice as
        // large, so bin 0 has only even numbers.
        if (sum != 0) body(position == 0 ? 0 : position - 1, position == 0 ? sum / 2 : sum, bin >= bins / 2);
        position += part_bits;
      }
    }
  }

 private:
  using Number = Layout<T>;
  using Bits = typename Number::Bits;
  using Two [[gnu::vector_size(16)]] = std::uint64_t;
  using Sum = std::conditional_t<sizeof(T) == 4, std::uint64_t, Two>;

  static constexpr std::size_t parts = sizeof(Sum) / 8, part_bits = 42, bin_exponents = 16 * parts;
  using Parts = std::array<std::uint64_t, parts>;
  static constexpr std::size_t bins = (std::size_t{1} << Number::sign_and_exponent_bits) / bin_exponents;
  static constexpr std::size_t some = parts == 1 ? 128 : 32, copies = 4;  // fast ones
  // A shifted float also carries the number of its bin, above the bits that the sum of 2^20 of them has.
  static constexpr std::size_t sum_bits = parts == 1 ? 59 : 64;
  static constexpr std::uint64_t sum_mask = ~std::uint64_t{0} >> (64 - sum_bits);
  static_assert(parts == 2 || bins << sum_bits == 0);

  [[gnu::always_inline]] void add_some(const T* numbers) {
    const auto bin_of = [](Bits bits) { return Number::sign_and_exponent(bits) / bin_exponents; };
    std::array<Parts, some> shifted;
    for (std::size_t i = 0; i < some; ++i) {
      const auto bits = std::bit_cast<Bits>(numbers[i]), fraction = bits & Number::fraction_mask;
      const std::uint64_t significand = fraction + ((bits & Number::infinity) == 0 ? fraction : Number::first_bit);
      const std::uint64_t shift = bits >> (Number::significand_bits - 1) & (bin_exponents - 1);
      if constexpr (parts == 1)
        shifted[i] = {significand << shift | std::uint64_t{bin_of(bits)} << sum_bits};
      else
        shifted[i] = {significand << shift & ((std::uint64_t{1} << part_bits) - 1), significand >> (part_bits - shift)};
    }
    // A sum takes a while to come back from memory, and the next number may be for the same bin.
    for (std::size_t i = 0; i < some; i += copies)
      for (std::size_t copy = 0; copy < copies; ++copy) {
        const Parts& more = shifted[i + copy];
        const std::size_t bin = parts == 1 ? more.front() >> sum_bits : bin_of(std::bit_cast<Bits>(numbers[i + copy]));
        sums_[copy][bin] += std::bit_cast<Sum>(more);
      }
  }

  std::array<std::array<Sum, bins>, copies> sums_{};
};

}  // namespace lockstep::exact
