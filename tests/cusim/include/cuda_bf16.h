// The brain floats that .cu files use: conversions and bits.
#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  std::uint16_t bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return {bits};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
  return x.bits;
}
inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

/// To nearest, ties to even; what is not a number becomes 0x7fff.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}
