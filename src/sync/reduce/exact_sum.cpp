#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/exact_sum.hpp>

#include "core/base/wide_loop.hpp"

namespace lockstep {
namespace {

constexpr std::size_t digit_bits = 32;
constexpr std::int64_t digit_mask = 0xffff'ffff;

// A number adds less than 2^53 to a digit, and a block of them less than 2^40, so these need no carries: 2^62.
constexpr std::int32_t most_additions = 512;

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

  /// Whether the significand has a first bit that is not written down: a number that is neither 0 nor denormal.
  static bool has_first_bit(unsigned exponent) { return exponent != 0 && exponent != last_exponent; }

  /// The place of the lowest bit of the significand, in units of the smallest number.
  static std::size_t position(unsigned exponent) { return exponent == 0 ? 0 : exponent - 1; }
};

// Long spans fill bins, one for each sign and exponent, to each of which a block of so many numbers adds less than
// 2^64.
constexpr std::size_t block_numbers = 2048;
constexpr std::size_t bins_of_group = 64;
template <class T>
constexpr std::size_t number_of_bins = std::size_t{1} << Layout<T>::sign_and_exponent_bits;

// Fewer numbers are added one by one before the bins are cleared.
template <class T>
constexpr std::size_t enough_for_bins = number_of_bins<T> / 8;

/// Floats that were added up as doubles.
struct Lanes {
  static constexpr std::size_t count = 8;

  std::array<double, count> sums{};
  std::array<std::uint32_t, count> largest{}, smallest{};  ///< magnitudes, of the smallest one less 1
  std::array<std::uint32_t, count> negative_zeros{};
};

/// The length of `block` is a multiple of the number of lanes.
Lanes lanes_of(std::span<const float> block) {
  Lanes lanes;
  lanes.smallest.fill(~0U);  // as is 0 - 1: zeros are no bound
  wide_loop([&] {
    Lanes all = lanes;
    for (std::size_t i = 0; i < block.size(); i += Lanes::count)
      for (std::size_t lane = 0; lane < Lanes::count; ++lane) {
        const auto bits = std::bit_cast<std::uint32_t>(block[i + lane]), magnitude = bits & ~Layout<float>::sign;
        all.sums[lane] += static_cast<double>(block[i + lane]);
        all.largest[lane] = std::max(all.largest[lane], magnitude);
        all.smallest[lane] = std::min(all.smallest[lane], magnitude - 1);
        all.negative_zeros[lane] += bits == Layout<float>::sign ? 1 : 0;
      }
    lanes = all;
  });
  return lanes;
}

/// Whether no lane was rounded: its floats are multiples of one number, and their sum is at most 2^53 times as large.
/// Denormal floats are refused, which a program may have the processor take for zeros.
bool are_exact(const Lanes& lanes, std::size_t floats) {
  const auto exponent = [](std::uint32_t magnitude) { return magnitude >> (Layout<float>::significand_bits - 1); };
  const std::uint32_t largest = exponent(std::ranges::max(lanes.largest));
  const std::uint32_t smallest = exponent(std::ranges::min(lanes.smallest) + 1);
  const std::uint32_t carries = static_cast<std::uint32_t>(std::bit_width(floats / Lanes::count - 1));
  if (largest == Layout<float>::last_exponent) return false;
  if (largest == 0) return std::ranges::max(lanes.largest) == 0;
  return smallest > 0 &&
         largest - smallest + carries + Layout<float>::significand_bits <= Layout<double>::significand_bits;
}

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

/// Leaves digits from 0 to 2^32 - 1 behind, but for the last one, which has the sign.
void carry(std::span<std::int64_t> digits) {
  for (std::size_t i = 0; i + 1 < digits.size(); ++i) {
    digits[i + 1] = wrapping_sum(digits[i + 1], digits[i] >> digit_bits);
    digits[i] &= digit_mask;
  }
}

/// A sum that is not negative, rounded to the bits of a T.
template <class T>
typename Layout<T>::Bits rounded(std::span<const std::int64_t> digits) {
  using Number = Layout<T>;
  using Bits = typename Number::Bits;
  const auto digit = [&](std::size_t i) { return static_cast<std::uint64_t>(digits[i]); };
  std::size_t top = digits.size() - 1;
  while (top > 0 && digits[top] == 0) --top;
  // How many bits it has.
  const std::size_t width = digit_bits * top + static_cast<std::size_t>(std::bit_width(digit(top)));
  constexpr auto kept = static_cast<std::size_t>(Number::significand_bits);
  // A denormal number, and one with the first exponent, is written as the integer that it is.
  if (width <= kept) return static_cast<Bits>(digit(0) | digit(1) << digit_bits);
  if (width >= kept + Number::last_exponent - 1) return Number::infinity;

  const std::size_t lost = width - kept;
  const std::size_t from = lost / digit_bits, shift = lost % digit_bits;
  std::uint64_t significand = digit(from) >> shift | digit(from + 1) << (digit_bits - shift);
  if (shift > 0) significand |= digit(from + 2) << (2 * digit_bits - shift);
  significand &= (std::uint64_t{1} << kept) - 1;

  const std::size_t half_at = (lost - 1) / digit_bits;
  const std::uint64_t half = std::uint64_t{1} << (lost - 1) % digit_bits;
  const bool has_half = (digit(half_at) & half) != 0;
  const bool has_more = (digit(half_at) & (half - 1)) != 0 ||
                        std::any_of(digits.begin(), digits.begin() + static_cast<std::ptrdiff_t>(half_at),
                                    [](std::int64_t each) { return each != 0; });
  const bool up = has_half && (has_more || (significand & 1) != 0);
  // A significand of ones goes up to the next exponent, and the largest number to infinity.
  return static_cast<Bits>((std::uint64_t{lost + 1} << (kept - 1)) + (significand - Number::first_bit) + (up ? 1 : 0));
}

}  // namespace

template <std::floating_point T>
auto ExactSum<T>::of_words(const Words& words) -> ExactSum {
  for (std::size_t i = nans; i < words.size(); ++i)
    if (words[i] < 0)
      throw InvalidArgument{fmt::format("word {} of an exact sum is {}: expected a count", i, words[i])};
  ExactSum sum;
  sum.words_ = words;
  carry({sum.words_.data(), digits});
  return sum;
}

template <std::floating_point T>
void ExactSum<T>::note_addition() {
  if (++additions_ < most_additions) return;
  carry({words_.data(), digits});
  additions_ = 0;
}

/// Without a carry. The significand has at most 53 bits.
template <std::floating_point T>
void ExactSum<T>::add_at(std::size_t position, std::uint64_t significand, bool is_negative) {
  const std::size_t digit = position / digit_bits, shift = position % digit_bits;
  const auto low = static_cast<std::int64_t>(significand << shift) & digit_mask;
  const auto high = static_cast<std::int64_t>(significand >> (digit_bits - shift));
  words_[digit] += is_negative ? -low : low;
  words_[digit + 1] += is_negative ? -high : high;
}

template <std::floating_point T>
void ExactSum<T>::add_one(T number) {
  using Number = Layout<T>;
  const auto bits = std::bit_cast<typename Number::Bits>(number);
  const bool is_negative = (bits & Number::sign) != 0;
  const unsigned exponent = Number::sign_and_exponent(bits & ~Number::sign);
  const auto fraction = bits & Number::fraction_mask;
  if (exponent == Number::last_exponent) {
    ++words_[fraction != 0 ? nans : is_negative ? negative_infinities : infinities];
  } else if (exponent == 0 && fraction == 0) {
    words_[negative_zeros] += is_negative ? 1 : 0;
  } else {
    add_at(Number::position(exponent), exponent == 0 ? fraction : fraction | Number::first_bit, is_negative);
    note_addition();
  }
}

/// Of floats. It has no bits below those of the smallest float.
template <std::floating_point T>
void ExactSum<T>::add_double(double sum) {
  if (sum == 0) return;
  using Number = Layout<double>;
  constexpr int lower = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits -
                        (std::numeric_limits<double>::min_exponent - std::numeric_limits<double>::digits);
  const auto bits = std::bit_cast<Number::Bits>(sum);
  const unsigned exponent = Number::sign_and_exponent(bits & ~Number::sign);
  const int position = static_cast<int>(Number::position(exponent)) - lower;
  const std::uint64_t significand = (bits & Number::fraction_mask) | Number::first_bit;
  add_at(static_cast<std::size_t>(std::max(position, 0)), significand >> std::max(-position, 0), sum < 0);
  note_addition();
}

/// Adds up the significands of each sign and exponent, and then those sums. `bins` has zeros, before and after.
template <std::floating_point T>
void ExactSum<T>::add_block(std::span<const T> block, std::uint64_t* bins) {
  using Number = Layout<T>;
  using Bits = typename Number::Bits;
  if constexpr (std::same_as<T, float>) {
    if (block.size() % Lanes::count == 0)
      if (const Lanes lanes = lanes_of(block); are_exact(lanes, block.size())) {
        for (const double sum : lanes.sums) add_double(sum);
        for (const std::uint32_t more : lanes.negative_zeros) words_[negative_zeros] += more;
        return;
      }
  }
  std::array<std::uint8_t, number_of_bins<T> / bins_of_group> is_used{};
  for (const T number : block) {
    const auto bits = std::bit_cast<Bits>(number);
    const unsigned bin = Number::sign_and_exponent(bits);
    bins[bin] += (bits & Number::fraction_mask) | Number::first_bit;
    is_used[bin / bins_of_group] = 1;
  }
  bool has_others = false;
  for (std::size_t bin = 0; bin < number_of_bins<T>; ++bin) {
    if (is_used[bin / bins_of_group] == 0) {
      bin += bins_of_group - 1;
      continue;
    }
    const std::uint64_t sum = std::exchange(bins[bin], 0);
    if (sum == 0) continue;
    const unsigned exponent = static_cast<unsigned>(bin) & Number::last_exponent;
    const bool is_negative = bin > Number::last_exponent;
    if (Number::has_first_bit(exponent)) {
      const std::size_t position = Number::position(exponent);
      add_at(position, sum & static_cast<std::uint64_t>(digit_mask), is_negative);
      add_at(position + digit_bits, sum >> digit_bits, is_negative);
    } else {
      has_others = true;
    }
  }
  note_addition();
  if (!has_others) return;
  for (const T number : block)
    if (!Number::has_first_bit(Number::sign_and_exponent(std::bit_cast<Bits>(number) & ~Number::sign))) add_one(number);
}

template <std::floating_point T>
void ExactSum<T>::add(T number) {
  add_one(number);
  ++words_[numbers_of_any_kind];
}

template <std::floating_point T>
void ExactSum<T>::add(std::span<const T> numbers) {
  words_[numbers_of_any_kind] += static_cast<std::int64_t>(numbers.size());
  if (numbers.size() < enough_for_bins<T>) {
    for (const T number : numbers) add_one(number);
    return;
  }
  std::array<std::uint64_t, number_of_bins<T>> bins{};
  for (; !numbers.empty(); numbers = numbers.subspan(std::min(block_numbers, numbers.size())))
    add_block(numbers.first(std::min(block_numbers, numbers.size())), bins.data());
}

template <std::floating_point T>
void ExactSum<T>::add(const ExactSum& other) {
  const Words more = other.words();
  carry({words_.data(), digits});
  for (std::size_t i = 0; i < more.size(); ++i) words_[i] = wrapping_sum(words_[i], more[i]);
  carry({words_.data(), digits});
  additions_ = 0;
}

template <std::floating_point T>
auto ExactSum<T>::words() const -> Words {
  Words all = words_;
  carry({all.data(), digits});
  return all;
}

template <std::floating_point T>
T ExactSum<T>::value() const {
  using Number = Layout<T>;
  Words all = words();
  const bool has_infinity = all[infinities] > 0, has_negative_infinity = all[negative_infinities] > 0;
  if (all[nans] > 0 || (has_infinity && has_negative_infinity)) return std::numeric_limits<T>::quiet_NaN();
  if (has_infinity || has_negative_infinity)
    return has_infinity ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
  if (all[numbers_of_any_kind] > 0 && all[negative_zeros] == all[numbers_of_any_kind])
    return std::bit_cast<T>(Number::sign);

  const std::span<std::int64_t> sum{all.data(), digits};
  const bool is_negative = sum.back() < 0;
  if (is_negative) {
    for (std::int64_t& digit : sum) digit = static_cast<std::int64_t>(-static_cast<std::uint64_t>(digit));
    carry(sum);
  }
  return std::bit_cast<T>(
      static_cast<typename Number::Bits>(rounded<T>(sum) | (is_negative ? Number::sign : typename Number::Bits{0})));
}

template class ExactSum<float>;
template class ExactSum<double>;

}  // namespace lockstep
