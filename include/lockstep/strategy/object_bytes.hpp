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
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include <lockstep/values/comparable.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/nested_struct.hpp>
#include <lockstep/values/parts.hpp>

namespace lockstep {
namespace detail {

template <class T>
constexpr bool is_object() {
  if constexpr (!std::is_object_v<T> || std::is_const_v<T> || std::is_array_v<T> || std::is_pointer_v<T> ||
                std::is_member_pointer_v<T> || std::is_null_pointer_v<T> || is_per_replica<T> || is_mirrored<T>) {
    return false;  // an address means something else in another process
  } else if constexpr ((NestedStruct<T> || (ListOfParts<T> && !GrowingParts<T> && !std::is_trivially_copyable_v<T>)) &&
                       !std::default_initializable<T>) {
    return false;  // it is made first, and then gets its parts
  } else if constexpr (KeyedParts<T>) {
    return is_object<typename PartsOf<T>::Key>() && is_object<typename PartsOf<T>::Part>();
  } else if constexpr (HasParts<T>) {
    return with_part_types<T>([]<class... P>() { return (is_object<P>() && ...); });
  } else {
    return std::same_as<T, std::string> || (std::is_trivially_copyable_v<T> && !std::ranges::view<T>);
  }
}

}  // namespace detail

/// A host value that Strategy::broadcast_object can send: text (std::string) and trivially copyable values without
/// pointers; and nests of those.
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
  const auto all = []<class... P>() {
    std::string text;
    ((text += (text.empty() ? "" : ", ") + object_layout<P>()), ...);
    return text;
  };
  if constexpr (is_flat<T>) {
    return flat_layout(typeid(T), sizeof(T));
  } else if constexpr (std::same_as<T, std::string>) {
    return "text";
  } else if constexpr (Optional<T>) {
    return "optional " + with_part_types<T>(all);
  } else if constexpr (KeyedParts<T>) {
    return '{' + object_layout<typename PartsOf<T>::Key>() + ": " + with_part_types<T>(all) + '}';
  } else if constexpr (GrowingParts<T>) {
    return '[' + with_part_types<T>(all) + ']';
  } else if constexpr (ListOfParts<T>) {
    return std::to_string(PartsOf<T>::count(T{})) + " of " + with_part_types<T>(all);
  } else {
    return '(' + with_part_types<T>(all) + ')';
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
  if constexpr (is_flat<T>) {
    append_flat(value, bytes);
  } else if constexpr (std::same_as<T, std::string>) {
    append_flat(std::uint64_t{value.size()}, bytes);
    const auto text = std::as_bytes(std::span{value});
    bytes.insert(bytes.end(), text.begin(), text.end());
  } else {
    if constexpr (GrowingParts<T>) append_flat(std::uint64_t{PartsOf<T>::count(value)}, bytes);
    if constexpr (KeyedParts<T>) {
      PartsOf<T>::each(value, [&](const auto& key, const auto& part) {
        append_object(key, bytes);
        append_object(part, bytes);
      });
    } else if constexpr (ListOfParts<T>) {
      PartsOf<T>::each(value, [&](const typename PartsOf<T>::Part& part) { append_object(part, bytes); });
    } else {
      for_each_part(value, [&](const auto& part) { append_object(part, bytes); });
    }
  }
}

template <BroadcastableObject T>
T take_object(std::span<const std::byte>& bytes);

/// What read_parts reads objects from.
struct ObjectReader {
  std::span<const std::byte>& bytes;

  std::size_t count() const { return static_cast<std::size_t>(take_flat<std::uint64_t>(bytes)); }
  template <class K>
  K key() const {
    return take_object<K>(bytes);
  }
  template <class P>
  P part() const {
    return take_object<P>(bytes);
  }
};

/// Removes the value at the front of `bytes` and returns it. Inverts append_object.
template <BroadcastableObject T>
T take_object(std::span<const std::byte>& bytes) {
  if constexpr (is_flat<T>) {
    return take_flat<T>(bytes);
  } else if constexpr (std::same_as<T, std::string>) {
    const auto size = static_cast<std::size_t>(take_flat<std::uint64_t>(bytes));
    std::string text{reinterpret_cast<const char*>(bytes.data()), size};
    bytes = bytes.subspan(size);
    return text;
  } else {
    return read_parts<T>(ObjectReader{bytes});
  }
}

}  // namespace detail
}  // namespace lockstep
