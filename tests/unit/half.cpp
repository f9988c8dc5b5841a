// The 16-bit floats: every pattern, and every way to round to one, against their definition.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <catch2/catch.hpp>

#include <lockstep/core/base/dtype.hpp>

#include "core/base/element_type.hpp"

using namespace lockstep;

namespace {

/// What a pattern of a sign, `exponent_bits` and the rest of a fraction stands for, by the definition of IEEE 754.
double value_of(std::uint32_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double fraction = static_cast<double>(bits & ((1u << fraction_bits) - 1));
  const double sign = bits & 0x8000u ? -1 : 1;
  const double one = std::ldexp(1., fraction_bits);
  if (exponent == (1 << exponent_bits) - 1)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(one + fraction, exponent - bias - fraction_bits);
}

template <class T>
constexpr int exponent_bits = 0;
template <>
constexpr int exponent_bits<Half> = 5;
template <>
constexpr int exponent_bits<BFloat16> = 8;

template <class T>
T pattern(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

/// The pattern of the largest finite number.
template <class T>
constexpr std::uint32_t largest = ((1u << exponent_bits<T>)-1) * (1u << (15 - exponent_bits<T>)) - 1;

}  // namespace

TEMPLATE_TEST_CASE("every 16-bit pattern is the float that it stands for, and comes back from it", "", Half, BFloat16) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto number = pattern<TestType>(bits);
    const float value = number;
    const double expected = value_of(bits, exponent_bits<TestType>);
    if (std::isnan(expected)) {
      const TestType back{value};
      wrong += !std::isnan(value) || !std::isnan(static_cast<float>(back)) || (back.bits ^ bits) & 0x8000u;
    } else {
      wrong += static_cast<double>(value) != expected || std::signbit(value) != std::signbit(expected) ||
               TestType{value}.bits != bits;
    }
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("what lies between two 16-bit numbers goes to the nearer, and from the middle to the even one", "",
                   Half, BFloat16) {
  int wrong = 0;
  for (const std::uint32_t sign : {0u, 0x8000u}) {
    for (std::uint32_t bits = 0; bits < largest<TestType>; ++bits) {
      const auto below = pattern<TestType>(sign | bits), above = pattern<TestType>(sign | (bits + 1));
      const auto middle = static_cast<float>((static_cast<double>(below) + static_cast<double>(above)) / 2);
      wrong += TestType{middle}.bits != (bits % 2 == 0 ? below : above).bits;
      wrong += TestType{std::nextafter(middle, static_cast<float>(below))}.bits != below.bits;
      wrong += TestType{std::nextafter(middle, static_cast<float>(above))}.bits != above.bits;
    }
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("a NaN stays a NaN, also one whose bits are all below the 16 that stay", "", Half, BFloat16) {
  for (const std::uint32_t bits : {0x7f80'0001u, 0xff80'0001u, 0x7fff'ffffu}) {
    const TestType number{std::bit_cast<float>(bits)};
    CHECK(std::isnan(static_cast<float>(number)));
    CHECK(number.bits >> 15 == bits >> 31);
  }
}

TEST_CASE("what is too large for 16 bits is infinite from half a step beyond the largest on") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(static_cast<float>(Half{std::nextafter(65520.f, 0.f)}) == 65504);
  CHECK(static_cast<float>(Half{65520.f}) == infinity);
  CHECK(static_cast<float>(Half{-65520.f}) == -infinity);
  CHECK(static_cast<float>(Half{std::numeric_limits<float>::max()}) == infinity);
  CHECK(static_cast<float>(BFloat16{0x1.fep127f}) == 0x1.fep127f);
  CHECK(static_cast<float>(BFloat16{0x1.fefffep127f}) == 0x1.fep127f);
  CHECK(static_cast<float>(BFloat16{0x1.ffp127f}) == infinity);
  CHECK(static_cast<float>(BFloat16{-std::numeric_limits<float>::max()}) == -infinity);
  CHECK(Half{0x1p-26f}.bits == 0);
  CHECK(Half{-0x1p-25f}.bits == 0x8000);
  CHECK(Half{0x1.000002p-25f}.bits == 1);
}

TEST_CASE("16-bit floats are elements of tensors") {
  CHECK(detail::dtype_of<Half> == DType::f16);
  CHECK(detail::dtype_of<BFloat16> == DType::bf16);
  CHECK(sizeof(Half) == size_of(DType::f16));
  CHECK(sizeof(BFloat16) == size_of(DType::bf16));
  CHECK(name_of(detail::dtype_of<BFloat16>) == "bf16");
}
