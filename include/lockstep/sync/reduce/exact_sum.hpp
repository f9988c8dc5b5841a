// Sums that are computed exactly, and rounded once.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

/// The exact sum of numbers. Its value depends on the numbers alone, not on who added them up, and in which order:
///
///   ExactSum<double> sum;
///   sum.add(std::span{losses});
///   all.all_reduce(sum);  // of all ranks' numbers
///   std::printf("%a\n", sum.value());
///
/// A superaccumulator (Kulisch): one integer with as many bits as all numbers of the type need. It has digits of 32
/// bits in words of 64, so that carries can wait (Neal, "Fast exact summation using small and large superaccumulators",
/// 2015), and so can those of a sum over ranks (Collange, Defour, Graillat, Iakymchuk, 2015). It holds up to 2^63
/// numbers. Every method is LOCAL.
template <std::floating_point T>
class LOCKSTEP_API ExactSum {
 public:
  static_assert(std::same_as<T, float> || std::same_as<T, double>, "exact sums are of float or double");

  static constexpr std::size_t digits = std::same_as<T, float> ? 10 : 67;

  /// The digits of the sum, in units of the smallest positive number: each is below 2^32, and the last one has the
  /// sign. Then how many NaNs, positive infinities, negative infinities and negative zeros there are, and how many
  /// numbers of any kind. The same numbers have the same words, in whatever order and parts they were added up.
  using Words = std::array<std::int64_t, digits + 5>;

  /// Of no numbers. Its value is 0.
  ExactSum() = default;

  /// The sum that has these words, or is that of up to 2^31 sums whose words were added up one by one. InvalidArgument
  /// if a count is negative.
  static ExactSum of_words(const Words& words);

  void add(T number);
  /// Many numbers are faster together, most of all those of like size.
  void add(std::span<const T> numbers);
  /// All numbers of another sum.
  void add(const ExactSum& other);

  /// The sum, rounded to nearest, ties to even, whatever the rounding mode. Infinite if it is too large, or if one of
  /// the numbers is; NaN if one of them is, or if there are infinities of either sign. -0 if all numbers are -0.
  T value() const;

  Words words() const;

 private:
  enum : std::size_t { nans = digits, infinities, negative_infinities, negative_zeros, numbers_of_any_kind };

  void add_one(T number);
  void add_double(double sum);
  void add_at(std::size_t position, std::uint64_t significand, bool is_negative);
  void note_addition();

  Words words_{};             ///< with carries to come
  std::int32_t additions_{};  ///< since there were none
};

}  // namespace lockstep
