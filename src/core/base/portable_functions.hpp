// Elementary functions of double that give the same bits on every machine, with every compiler and C library. They are
// made of IEEE 754's +, -, *, / and comparisons alone, each rounded to nearest, and of nothing that may be fused: the
// build says -ffp-contract=off. Constants of the series are the ratios that stand there, so they can be checked by eye.
//
// Bounds on errors are in units in the last place (ulp) of the exact result, and hold for normal results;
// tests/unit/base_portable_functions.cpp compares with a wider type.
#pragma once

#include <bit>
#include <cfloat>
#include <cstdint>
#include <limits>

#if defined(__FAST_MATH__)
#error "lockstep must be compiled without -ffast-math: its results have the same bits everywhere"
#endif

namespace lockstep::portable {

static_assert(std::numeric_limits<double>::is_iec559 && FLT_EVAL_METHOD == 0, "expected doubles of IEEE 754");

namespace detail {

/// ln 2 in two parts. The first has 41 bits, so its products with the exponents of doubles are exact.
inline constexpr double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
inline constexpr double inverse_ln2 = 0x1.71547652b82fep+0;
inline constexpr double pi = 0x1.921fb54442d18p+1;

/// A number below 2^51 added to this is rounded to an integer, which the low bits of the sum then hold.
inline constexpr double to_integer = 0x1.8p52;

inline std::uint64_t bits_of(double x) {
  return std::bit_cast<std::uint64_t>(x);
}

/// Horner's scheme, from the coefficient of the highest power down. No loop, so that every compiler makes straight code
/// of it, and loops that call it vectorise.
template <class... Coefficients>
inline double polynomial(double x, double highest, Coefficients... others) {
  double sum = highest;
  ((sum = sum * x + others), ...);
  return sum;
}

/// 2^exponent, for exponents from -1022 to 1023.
inline double power_of_two(std::uint64_t exponent) {
  return std::bit_cast<double>((exponent + 1023) << 52);
}

/// e^x = 2^exponent * (1 + rest), where `rest` is from -0.3 to 0.42, and the exponent is an integer modulo 2^64.
struct Exponential {
  std::uint64_t exponent;
  double rest;
};

/// For x from -746 to 710. Cody and Waite: "Software Manual for the Elementary Functions", 1980, chapter 6: x minus the
/// nearest multiple of ln 2 is at most 0.347, for which Taylor's series of e^r - 1 needs 13 terms.
inline Exponential exponential(double x) {
  const double shifted = x * inverse_ln2 + to_integer;
  const double multiple = shifted - to_integer;
  const double r = (x - multiple * ln2_high) - multiple * ln2_low;
  const double series = polynomial(r, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                   1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2);
  return {bits_of(shifted) - bits_of(to_integer), r + r * r * series};
}

/// A sum of two doubles, of which the second is what the first was rounded by.
struct Pair {
  double high;
  double low;
};

/// A double in two halves, whose products are exact.
inline Pair halves(double x) {
  const double scaled = 0x1.0000002p27 * x;
  const double high = scaled - (scaled - x);
  return {high, x - high};
}

/// Dekker: "A floating-point technique for extending the available precision", 1971.
inline Pair product(const Pair& a, const Pair& b) {
  const Pair x = halves(a.high), y = halves(b.high);
  const double rounded = a.high * b.high;
  double rest = ((x.high * y.high - rounded) + x.high * y.low + x.low * y.high) + x.low * y.low;
  rest += a.high * b.low + a.low * b.high;
  const double high = rounded + rest;
  return {high, rest - (high - rounded)};
}

}  // namespace detail

/// e^x, to 1 ulp. Infinite beyond the largest double, and rounded once more below the least normal one.
inline double exp(double x) {
  const double bounded = x > 710 ? 710 : x < -746 ? -746 : x;  // lets NaN through
  const detail::Exponential e = detail::exponential(bounded);
  const std::uint64_t half = ((e.exponent + 2048) >> 1) - 1024;  // 2^exponent alone need not be a double
  return (1 + e.rest) * detail::power_of_two(half) * detail::power_of_two(e.exponent - half);
}

/// The natural logarithm, to 1 ulp. log(0) is minus infinity; NaN for what is below 0.
///
/// With x = 2^k (1 + f) and s = f / (2 + f), log(1 + f) = 2 artanh(s) = 2s + 2/3 s^3 + 2/5 s^5 + …, where 2s = f - s f
/// has f without an error. |s| is at most 0.172, for which 10 terms are enough.
inline double log(double x) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double least_normal = std::numeric_limits<double>::min(), root_of_two = 0x1.6a09e667f3bcdp+0;
  if (!(x > 0 && x < infinity)) return x == 0 ? -infinity : x < 0 ? std::numeric_limits<double>::quiet_NaN() : x;
  const bool is_small = x < least_normal;
  const std::uint64_t bits = detail::bits_of(is_small ? x * 0x1p54 : x);
  double exponent = static_cast<double>(bits >> 52) - (is_small ? 1077 : 1023);
  double significand = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (significand > root_of_two) {
    significand *= 0.5;
    exponent += 1;
  }
  const double f = significand - 1, s = f / (2 + f), z = s * s;
  const double series = detail::polynomial(z, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9,
                                           2.0 / 7, 2.0 / 5, 2.0 / 3);
  return exponent * detail::ln2_high + (f - (s * (f - z * series) - exponent * detail::ln2_low));
}

/// The hyperbolic tangent, to 3 ulp: (e^2|x| - 1) / (e^2|x| + 1) with the sign of x.
inline double tanh(double x) {
  const double size = x < 0 ? -x : x;
  const detail::Exponential e = detail::exponential(size > 20 ? 40 : 2 * size);  // from 20 on it rounds to 1
  const double power = detail::power_of_two(e.exponent);
  const double less_one = power * e.rest + (power - 1);
  const double result = less_one / (less_one + 2);
  return x < 0 ? -result : result;
}

/// The cosine of pi x, to 2 ulp, for |x| below 2^50. x minus the nearest multiple of 1/2 is exact, and at most 1/4;
/// there Taylor's series of sine and cosine need 9 and 10 terms.
inline double cos_pi(double x) {
  const double shifted = 2 * x + detail::to_integer;
  const double a = detail::pi * (x - (shifted - detail::to_integer) / 2), z = a * a;
  const double sine = a - a * z *
                              detail::polynomial(-z, 1.0 / 355687428096000, 1.0 / 1307674368000, 1.0 / 6227020800,
                                                 1.0 / 39916800, 1.0 / 362880, 1.0 / 5040, 1.0 / 120, 1.0 / 6);
  const double cosine =
      detail::polynomial(-z, 1.0 / 6402373705728000, 1.0 / 20922789888000, 1.0 / 87178291200, 1.0 / 479001600,
                         1.0 / 3628800, 1.0 / 40320, 1.0 / 720, 1.0 / 24, 1.0 / 2, 1.0);
  switch (detail::bits_of(shifted) & 3) {
    case 0: return cosine;
    case 1: return -sine;
    case 2: return -cosine;
    default: return sine;
  }
}

/// base^exponent, to 1 ulp, for a base from 0 to 1: products of squares of squares, which carry twice the digits.
inline double power(double base, std::uint64_t exponent) {
  detail::Pair result{1, 0}, square{base, 0};
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = detail::product(result, square);
    square = detail::product(square, square);
  }
  return result.high;
}

}  // namespace lockstep::portable

namespace lockstep::detail {

/// What computes powers, exponentials and their like: the C library, whose bits differ by machine, or those above.
enum class Functions { of_library, portable };

}  // namespace lockstep::detail
