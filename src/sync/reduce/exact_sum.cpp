#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/exact_sum.hpp>

#include "sync/reduce/exact_bins.hpp"

namespace lockstep {
namespace {

using exact::Layout;

constexpr std::size_t digit_bits = 32;
constexpr std::int64_t digit_mask = 0xffff'ffff;

// A number adds less than 2^53 to a digit, and so do all bins together, so these need no carries: 2^62.
constexpr std::int32_t most_additions = 512;

// Shorter spans are added up number by number.
constexpr std::size_t enough_for_blocks = 256;

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

/// `sum` is 0 or a normal number, and a multiple of the smallest positive T.
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

template <std::floating_point T>
void ExactSum<T>::add(T number) {
  add_one(number);
  ++words_[numbers_of_any_kind];
}

template <std::floating_point T>
void ExactSum<T>::add(std::span<const T> numbers) {
  words_[numbers_of_any_kind] += static_cast<std::int64_t>(numbers.size());
  if (numbers.size() < enough_for_blocks) {
    for (const T number : numbers) add_one(number);
    return;
  }
  using namespace exact;
  std::optional<Bins<T>> bins;  // for blocks that doubles do not hold
  std::size_t blocks_in_bins = 0;
  const auto empty_bins = [&] {
    if (std::exchange(blocks_in_bins, 0) == 0) return;
    bins->empty([&](std::size_t position, std::uint64_t sum, bool is_negative) {
      add_at(position, sum & static_cast<std::uint64_t>(digit_mask), is_negative);
      add_at(position + digit_bits, sum >> digit_bits, is_negative);
    });
    note_addition();
  };
  while (numbers.size() >= double_lanes) {
    const auto block = numbers.first(std::min(block_numbers, numbers.size() / double_lanes * double_lanes));
    const T* const next = block.data() + (numbers.size() < 3 * block_numbers ? 0 : 2 * block_numbers);
    numbers = numbers.subspan(block.size());
    const Survey survey = survey_of(block);
    if (survey.largest == Layout<T>::last_exponent) {
      for (const T number : block) add_one(number);
      continue;
    }
    words_[negative_zeros] += survey.negative_zeros;
    if (fit_doubles<T>(survey)) {
      const auto [high, low] = sum_in_doubles(block, survey.largest, next);
      add_double(high);
      add_double(low);
      continue;
    }
    if (!bins) bins.emplace();
    bins->add(block, next);
    if (++blocks_in_bins == Bins<T>::most_blocks) empty_bins();
  }
  empty_bins();
  for (const T number : numbers) add_one(number);
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
