// Numbers as matrices store them.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <library_types.h>

namespace cusim::cublaslt {

/// Rounds to the nearest with `bits` fewer bits of the significand, ties to even. Keeps NaN and infinity.
inline float round_off(float value, unsigned bits) {
  if (!std::isfinite(value)) return value;
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t half = (std::uint32_t{1} << (bits - 1)) - 1 + ((word >> bits) & 1);
  return std::bit_cast<float>((word + half) & ~((std::uint32_t{1} << bits) - 1));
}

template <class Number>
Number load_as(const std::byte* from) {
  Number number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

template <class Number>
void store_as(std::byte* to, Number number) {
  std::memcpy(to, &number, sizeof number);
}

template <class T>
T load(cudaDataType type, const std::byte* from) {
  if (type == CUDA_R_32F) return static_cast<T>(load_as<float>(from));
  if (type == CUDA_R_64F) return static_cast<T>(load_as<double>(from));
  if (type == CUDA_R_16BF) return static_cast<T>(__bfloat162float(load_as<__nv_bfloat16>(from)));
  return static_cast<T>(static_cast<float>(load_as<_Float16>(from)));
}

template <class T>
void store(cudaDataType type, std::byte* to, T value) {
  if (type == CUDA_R_32F)
    store_as(to, static_cast<float>(value));
  else if (type == CUDA_R_64F)
    store_as(to, static_cast<double>(value));
  else if (type == CUDA_R_16BF)
    store_as(to, __float2bfloat16_rn(static_cast<float>(value)));
  else
    store_as(to, static_cast<_Float16>(static_cast<float>(value)));
}

}  // namespace cusim::cublaslt
