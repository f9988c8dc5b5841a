// The half precision that .cu files use: conversions and bits.
#pragma once

#include <bit>
#include <cstdint>

struct __half {
  std::uint16_t bits;
};
using half = __half;

inline __half __ushort_as_half(unsigned short bits) {
  return {bits};
}
inline unsigned short __half_as_ushort(__half x) {
  return x.bits;
}

inline float __half2float(__half x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000) << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  // As a float with the same bits the number is 2^112 times smaller; products with powers of two are exact.
  if (magnitude < 0x7c00) {
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
  }
  return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
}

/// To nearest, ties to even; what is not a number becomes 0x7fff.
inline __half __float2half_rn(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fff};
  if (magnitude >= 0x47800000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // from 2^16
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, rounded by the addition of 1/2
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000u))};
  }
  magnitude += 0xfffu + (magnitude >> 13 & 1);
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u) >> 13))};
}
