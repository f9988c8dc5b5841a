// Host values as the text that ranks compare.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/comparable.hpp>
#include <lockstep/values/parts.hpp>

namespace lockstep::detail {

/// "5", "0.1", "'adam'", "[1 2]", or the type and a digest if the value does not fit into a sentence. Equal values have
/// equal texts, and different values different ones.
std::string comparable_text(double value);
std::string comparable_text(long long value);
std::string comparable_text(std::string_view value);
std::string comparable_text(const Tensor& value);
std::string comparable_bytes(std::span<const std::byte> value);

/// The texts of several values as one, in brackets, so that the boundaries between them are compared too.
std::string comparable_list(const std::vector<std::string>& texts);

template <ComparableAcrossRanks T>
std::string comparable(const T& value) {
  if constexpr (std::floating_point<T>) {
    return comparable_text(static_cast<double>(value));
  } else if constexpr (std::integral<T> || std::is_enum_v<T>) {
    return comparable_text(static_cast<long long>(value));
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    return comparable_text(std::string_view{value});
  } else if constexpr (std::same_as<T, Tensor>) {
    return comparable_text(value);
  } else if constexpr (Optional<T>) {
    return value ? comparable_list({comparable(*value)}) : "nothing";
  } else if constexpr (HasParts<T> || requires { value.begin(), value.end(); }) {
    std::vector<std::string> texts;
    if constexpr (KeyedParts<T>) {
      PartsOf<T>::each(value, [&](const auto& key, const auto& part) {
        texts.push_back(comparable_list({comparable(key), comparable(part)}));
      });
    } else if constexpr (HasParts<T>) {
      for_each_part(value, [&](const auto& part) { texts.push_back(comparable(part)); });
    } else {
      for (const auto& each : value) texts.push_back(comparable(each));
    }
    return comparable_list(texts);
  } else {
    return comparable_bytes(std::as_bytes(std::span{&value, 1}));
  }
}

}  // namespace lockstep::detail
