// The portable functions against those of a wider type, to the bounds that their header states. That their bits are the
// same everywhere is tested in tests/portable.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include <catch2/catch.hpp>

#include <lockstep/core/base/philox.hpp>

#include "core/base/portable_functions.hpp"

using namespace lockstep;

namespace {

static_assert(std::numeric_limits<long double>::digits >= 64, "expected a type wider than double");

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Units in the last place of `exact` by which `found` is off.
double error_in_ulp(double found, long double exact) {
  const int exponent = std::max(std::ilogb(static_cast<double>(exact)), std::numeric_limits<double>::min_exponent - 1);
  return static_cast<double>(std::abs(std::ldexp(found - exact, 52 - exponent)));
}

/// The largest error of `function` at so many numbers between `low` and `high`, in ulp.
template <class Function, class Exact>
double largest_error(double low, double high, Function&& function, Exact&& exact) {
  constexpr std::uint64_t numbers = 20'000;
  const RandomStream random{1, RandomStream::Purpose::program, 0};
  double largest = 0;
  for (std::uint64_t i = 0; i < numbers; ++i) {
    const double x = low + (high - low) * (static_cast<double>(random.bits(i) >> 11) * 0x1p-53);
    largest = std::max(largest, error_in_ulp(function(x), exact(x)));
  }
  return largest;
}

long double exact_cos_pi(double x) {
  const double y = std::abs(std::remainder(x, 2));
  return std::sin(std::numbers::pi_v<long double> * (0.5L - y));
}

}  // namespace

TEST_CASE("exp is right to 1 ulp") {
  const auto exact = [](double x) { return std::exp(static_cast<long double>(x)); };
  CHECK(largest_error(-708, 709, portable::exp, exact) < 1);
  CHECK(largest_error(-2, 2, portable::exp, exact) < 1);
  CHECK(largest_error(-1e-9, 1e-9, portable::exp, exact) < 1);
  CHECK(portable::exp(0) == 1);
  CHECK(portable::exp(1e300) == infinity);
  CHECK(portable::exp(infinity) == infinity);
  CHECK(portable::exp(-1e300) == 0);
  CHECK(portable::exp(-infinity) == 0);
  CHECK(std::isnan(portable::exp(not_a_number)));
  // At both ends; below the least normal number it is rounded twice.
  CHECK(portable::exp(0x1.62e42fefa39efp+9) == Approx(std::numeric_limits<double>::max()).epsilon(1e-12));
  CHECK(portable::exp(0x1.62e42fefa39fp+9) == infinity);
  CHECK(largest_error(-745, -709, portable::exp, exact) < 1);
}

TEST_CASE("log is right to 1 ulp") {
  const auto exact = [](double x) { return std::log(static_cast<long double>(x)); };
  CHECK(largest_error(0.5, 2, portable::log, exact) < 1);
  CHECK(largest_error(1 - 1e-9, 1 + 1e-9, portable::log, exact) < 1);
  CHECK(largest_error(0, 1e300, portable::log, exact) < 1);
  const auto of_power = [](double x) { return portable::log(std::exp2(x)); };
  CHECK(largest_error(-1074, 1023, of_power, [&](double x) { return exact(std::exp2(x)); }) < 1);
  CHECK(portable::log(1) == 0);
  CHECK(portable::log(0) == -infinity);
  CHECK(portable::log(infinity) == infinity);
  CHECK(std::isnan(portable::log(-1)));
  CHECK(std::isnan(portable::log(-infinity)));
  CHECK(std::isnan(portable::log(not_a_number)));
}

TEST_CASE("tanh is right to 3 ulp") {
  const auto exact = [](double x) { return std::tanh(static_cast<long double>(x)); };
  for (const double size : {25., 1., 0.5, 1e-3, 1e-9, 1e-300})
    CHECK(largest_error(-size, size, portable::tanh, exact) < 3);
  CHECK(portable::tanh(0) == 0);
  CHECK(portable::tanh(20) == 1);
  CHECK(portable::tanh(-infinity) == -1);
  CHECK(std::isnan(portable::tanh(not_a_number)));
}

TEST_CASE("the cosine of pi times a number is right to 2 ulp") {
  for (const double size : {0.25, 2., 1e6}) CHECK(largest_error(-size, size, portable::cos_pi, exact_cos_pi) < 2);
  CHECK(largest_error(0.5 - 1e-9, 0.5 + 1e-9, portable::cos_pi, exact_cos_pi) < 2);
  for (const int n : {-3, -2, -1, 0, 1, 2, 3}) {
    CHECK(portable::cos_pi(n) == (n % 2 == 0 ? 1 : -1));
    CHECK(portable::cos_pi(n + 0.5) == 0);
  }
}

TEST_CASE("powers of numbers from 0 to 1 are right to 1 ulp") {
  for (const std::uint64_t exponent : {0, 1, 2, 3, 10, 77, 1'000, 99'999}) {
    const auto power = [&](double x) { return portable::power(x, exponent); };
    const auto exact = [&](double x) { return std::pow(static_cast<long double>(x), exponent); };
    // Where x^exponent is above the least normal double.
    const double low = exponent == 0 ? 0 : std::exp(-700. / static_cast<double>(exponent));
    INFO(exponent);
    CHECK(largest_error(low, 1, power, exact) < 1);
  }
  CHECK(portable::power(0.999, 10'000'000) == 0);
}
