// Element types of tensors.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

// 16-bit floating-point numbers, as tensors store them. Arithmetic goes through float, which represents each of them
// exactly.

/// IEEE 754's binary16: 5 bits of exponent, 11 of precision, up to 65504.
struct Half {
  std::uint16_t bits;

  Half() = default;

  /// Rounds to nearest, ties to even. A NaN becomes a quiet NaN.
  constexpr explicit Half(float value) : bits{rounded(std::bit_cast<std::uint32_t>(value))} {}

  /// Exact.
  constexpr operator float() const {
    const auto sign = (bits & 0x8000u) << 16;
    const auto magnitude = bits & 0x7fffu;
    if (magnitude < 0x0400) {  // subnormal: a multiple of 2^-24
      const float value = std::bit_cast<float>(float_bits_of_2_to_minus_14 | magnitude << 13) - 0x1p-14f;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
    }
    const std::uint32_t rebiased = magnitude < 0x7c00 ? 127 - 15 : 255 - 31;
    return std::bit_cast<float>(sign | ((magnitude << 13) + (rebiased << 23)));
  }

 private:
  static constexpr std::uint32_t float_bits_of_2_to_minus_14 = 113u << 23;

  static constexpr std::uint16_t rounded(std::uint32_t value) {
    const auto sign = value >> 16 & 0x8000u;
    const auto magnitude = value & 0x7fff'ffffu;
    const auto rounded_magnitude = [&]() -> std::uint32_t {
      if (magnitude > 0x7f80'0000u) return 0x7e00u | (magnitude >> 13 & 0x03ffu);
      if (magnitude >= std::bit_cast<std::uint32_t>(65520.f)) return 0x7c00u;
      if (magnitude < float_bits_of_2_to_minus_14)  // the addition rounds to a multiple of 2^-24
        return std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + .5f) - std::bit_cast<std::uint32_t>(.5f);
      return (magnitude + 0x0fffu + (magnitude >> 13 & 1u) - ((127u - 15u) << 23)) >> 13;
    };
    return static_cast<std::uint16_t>(sign | rounded_magnitude());
  }
};

/// bfloat16: the upper half of a float. 8 bits of exponent, 8 of precision.
struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;

  /// Rounds to nearest, ties to even. A NaN becomes a quiet NaN.
  constexpr explicit BFloat16(float value) : bits{rounded(std::bit_cast<std::uint32_t>(value))} {}

  /// Exact.
  constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t value) {
    if ((value & 0x7fff'ffffu) > 0x7f80'0000u) return static_cast<std::uint16_t>(value >> 16 | 0x0040u);
    return static_cast<std::uint16_t>((value + 0x7fffu + (value >> 16 & 1u)) >> 16);
  }
};

enum class LOCKSTEP_API DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8 };

/// "f32", "i64", …, as messages print it.
LOCKSTEP_API std::string_view name_of(DType dtype);

namespace detail {

/// A C++ type that stands for a DType.
template <class T>
concept Element =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, Half> || std::same_as<T, BFloat16> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> || std::same_as<T, std::uint8_t>;

/// The DType that T stands for.
template <Element T>
inline constexpr DType dtype_of = std::is_same_v<T, float>          ? DType::f32
                                  : std::is_same_v<T, double>       ? DType::f64
                                  : std::is_same_v<T, Half>         ? DType::f16
                                  : std::is_same_v<T, BFloat16>     ? DType::bf16
                                  : std::is_same_v<T, std::int32_t> ? DType::i32
                                  : std::is_same_v<T, std::int64_t> ? DType::i64
                                                                    : DType::u8;

}  // namespace detail

}  // namespace lockstep
