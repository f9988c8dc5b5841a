// Element types of tensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <lockstep/base/half.hpp>

namespace lockstep {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8 };

/// Size of one element in bytes.
std::size_t size_of(DType dtype);

/// "f32", "i64", …, as messages print it.
std::string_view name_of(DType dtype);

/// True for f32, f64, f16 and bf16.
bool is_floating_point(DType dtype);

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

}  // namespace lockstep
