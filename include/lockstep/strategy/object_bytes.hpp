// Turns host values into bytes and back, for Strategy::broadcast_object.
//
//   struct Settings {
//     std::string path;
//     std::vector<std::string> classes;
//   };
//   template <>
//   struct lockstep::Nest<Settings> {
//     static constexpr auto members = std::tuple{&Settings::path, &Settings::classes};
//   };
//
//   const Settings settings = strategy.broadcast_object(read_settings).value();  // read on replica 0 only
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <lockstep/values/comparable.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/nested_struct.hpp>

namespace lockstep {
namespace detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_map = false;
template <class K, class T>
inline constexpr bool is_map<std::map<K, T>> = true;

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

template <class T>
constexpr bool is_object();

template <class T, std::size_t... I>
constexpr bool are_objects(std::index_sequence<I...>) {
  return (is_object<std::tuple_element_t<I, T>>() && ...);
}

template <class T>
constexpr bool is_object() {
  if constexpr (!std::is_object_v<T> || std::is_const_v<T> || std::is_array_v<T> || std::is_pointer_v<T> ||
                std::is_member_pointer_v<T> || std::is_null_pointer_v<T> || is_per_replica<T> || is_mirrored<T>) {
    return false;  // an address means something else in another process
  } else if constexpr (NestedStruct<T>) {
    return std::default_initializable<T> && with_member_types<T>([]<class... M>() { return (is_object<M>() && ...); });
  } else if constexpr (std::same_as<T, std::string>) {
    return true;
  } else if constexpr (is_vector<T> || Optional<T>) {
    return is_object<typename T::value_type>();
  } else if constexpr (is_map<T>) {
    return is_object<typename T::key_type>() && is_object<typename T::mapped_type>();
  } else if constexpr (TupleLike<T> && requires { typename T::value_type; }) {
    return is_object<typename T::value_type>();  // an array, perhaps a long one
  } else if constexpr (TupleLike<T>) {
    return are_objects<T>(std::make_index_sequence<std::tuple_size_v<T>>{});
  } else {
    return std::is_trivially_copyable_v<T> && !std::ranges::view<T>;
  }
}

}  // namespace detail

/// A host value that Strategy::broadcast_object can send: text (std::string) and trivially copyable values without
/// pointers; vectors, arrays, optionals, maps, pairs and tuples of those; and structs, by the members that their Nest
/// names.
template <class T>
concept BroadcastableObject = detail::is_object<T>();

namespace detail {

/// Sent as its bytes in memory.
template <class T>
inline constexpr bool is_flat = std::is_trivially_copyable_v<T> && !NestedStruct<T> && !Optional<T>;

/// "Settings of 12 bytes".
std::string flat_layout(const std::type_info& type, std::size_t bytes);

/// What the ranks compare before they send: "text", "[Settings of 12 bytes]", "(int of 4 bytes, text)".
template <BroadcastableObject T>
std::string object_layout() {
  const auto all = []<class... M>() {
    std::string text;
    ((text += (text.empty() ? "" : ", ") + object_layout<M>()), ...);
    return '(' + text + ')';
  };
  if constexpr (is_flat<T>) {
    return flat_layout(typeid(T), sizeof(T));
  } else if constexpr (NestedStruct<T>) {
    return with_member_types<T>(all);
  } else if constexpr (std::same_as<T, std::string>) {
    return "text";
  } else if constexpr (is_vector<T>) {
    return '[' + object_layout<typename T::value_type>() + ']';
  } else if constexpr (Optional<T>) {
    return "optional " + object_layout<typename T::value_type>();
  } else if constexpr (is_map<T>) {
    return '{' + object_layout<typename T::key_type>() + ": " + object_layout<typename T::mapped_type>() + '}';
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return all.template operator()<std::tuple_element_t<I, T>...>();
    }
    (std::make_index_sequence<std::tuple_size_v<T>>{});
  }
}

template <class T>
void append_flat(const T& value, std::vector<std::byte>& bytes) {
  const auto raw = std::as_bytes(std::span{&value, 1});
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

template <class T>
T take_flat(std::span<const std::byte>& bytes) {
  std::array<std::byte, sizeof(T)> raw;
  std::memcpy(raw.data(), bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return std::bit_cast<T>(raw);
}

/// Appends `value` to `bytes`.
template <BroadcastableObject T>
void append_object(const T& value, std::vector<std::byte>& bytes) {
  const auto append_all = [&](const auto&... each) { (append_object(each, bytes), ...); };
  if constexpr (is_flat<T>) {
    append_flat(value, bytes);
  } else if constexpr (NestedStruct<T>) {
    std::apply([&](auto... member) { append_all(value.*member...); }, Nest<T>::members);
  } else if constexpr (std::same_as<T, std::string>) {
    append_flat(std::uint64_t{value.size()}, bytes);
    const auto text = std::as_bytes(std::span{value});
    bytes.insert(bytes.end(), text.begin(), text.end());
  } else if constexpr (Optional<T>) {
    append_flat(value.has_value(), bytes);
    if (value) append_object(*value, bytes);
  } else if constexpr (is_vector<T>) {
    append_flat(std::uint64_t{value.size()}, bytes);
    for (const typename T::value_type& each : value) append_object(each, bytes);
  } else if constexpr (is_map<T>) {
    append_flat(std::uint64_t{value.size()}, bytes);
    for (const auto& [key, each] : value) append_all(key, each);
  } else {
    std::apply(append_all, value);
  }
}

/// Removes the value at the front of `bytes` and returns it. Inverts append_object.
template <BroadcastableObject T>
T take_object(std::span<const std::byte>& bytes) {
  if constexpr (is_flat<T>) {
    return take_flat<T>(bytes);
  } else if constexpr (NestedStruct<T>) {
    T made{};
    const auto take = [&]<class M>(M& member) { member = take_object<M>(bytes); };
    std::apply([&](auto... member) { (take(made.*member), ...); }, Nest<T>::members);
    return made;
  } else if constexpr (std::same_as<T, std::string>) {
    const auto size = static_cast<std::size_t>(take_flat<std::uint64_t>(bytes));
    std::string text{reinterpret_cast<const char*>(bytes.data()), size};
    bytes = bytes.subspan(size);
    return text;
  } else if constexpr (Optional<T>) {
    return take_flat<bool>(bytes) ? T{take_object<typename T::value_type>(bytes)} : std::nullopt;
  } else if constexpr (is_vector<T>) {
    T made;
    for (auto left = take_flat<std::uint64_t>(bytes); left > 0; --left)
      made.push_back(take_object<typename T::value_type>(bytes));
    return made;
  } else if constexpr (is_map<T>) {
    T made;
    for (auto left = take_flat<std::uint64_t>(bytes); left > 0; --left) {
      auto key = take_object<typename T::key_type>(bytes);
      made.emplace_hint(made.end(), std::move(key), take_object<typename T::mapped_type>(bytes));
    }
    return made;
  } else {
    // Braces: the only call syntax whose arguments are evaluated in order.
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return T{take_object<std::tuple_element_t<I, T>>(bytes)...};
    }
    (std::make_index_sequence<std::tuple_size_v<T>>{});
  }
}

}  // namespace detail
}  // namespace lockstep
