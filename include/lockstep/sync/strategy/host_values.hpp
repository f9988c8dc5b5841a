// How ranks exchange host values and nests: as text that they compare, and as bytes that replica 0 sends.
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
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/sparse_tensor.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/locality.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep::detail {

// By value, for Strategy::same_on_all.

/// "5", "0.1", "'adam'", "[1 2]", or type and digest if it is too long. Different values have different texts.
LOCKSTEP_API std::string comparable_text(double value);
LOCKSTEP_API std::string comparable_text(long long value);
LOCKSTEP_API std::string comparable_text(std::string_view value);
LOCKSTEP_API std::string comparable_text(const Tensor& value);
LOCKSTEP_API std::string comparable_bytes(std::span<const std::byte> value);

/// The texts of several values as one, in brackets, so that the boundaries between them are compared too.
LOCKSTEP_API std::string comparable_list(const std::vector<std::string>& texts);

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

// By structure and types, for the operands of a merge_call and the result of a run.

/// How an optional is described: by what it holds, if anything, or by its type alone.
enum class Optionals { with_presence, by_type };

template <class T>
void append_signature(const T& value, std::string& text, Optionals optionals);

/// "variable 'w' of strategy 0": an operand may be another strategy's.
LOCKSTEP_API std::string operand_text(const Variable& variable);

template <class T>
struct Signature {
  /// Whether all values of T have the same signature.
  static constexpr bool constant = !std::same_as<T, Tensor> && !std::same_as<T, IndexedSlices> &&
                                   !std::same_as<T, SparseTensor> && !std::derived_from<T, Variable>;

  static void append(const T& value, std::string& text, Optionals) {
    if constexpr (ReducibleNumber<T>) {
      text += name_of(dtype_of<carrier_t<T>>);
    } else if constexpr (std::same_as<T, Tensor>) {
      text += name_of(value.dtype());
      text += " tensor";
    } else if constexpr (std::same_as<T, IndexedSlices>) {
      text += name_of(value.values.dtype());
      text += " slices";
    } else if constexpr (std::same_as<T, SparseTensor>) {
      text += name_of(value.values.dtype());
      text += " sparse tensor";
    } else if constexpr (std::derived_from<T, Variable>) {
      text += operand_text(value);
    } else {
      text += typeid(T).name();
    }
  }
};

template <class T>
void append_signature(const T& value, std::string& text, Optionals optionals) {
  Signature<T>::append(value, text, optionals);
}

template <class T>
struct Signature<PerReplica<T>> {
  static void append(const PerReplica<T>& value, std::string& text, Optionals optionals) {
    append_signature(value.local(), text, optionals);
  }
};
template <class T>
struct Signature<Mirrored<T>> {
  static void append(const Mirrored<T>& value, std::string& text, Optionals optionals) {
    text += "mirrored ";
    append_signature(value.value(), text, optionals);
  }
};

/// "[3 f32]", "[f32 tensor i32 tensor ]", "{loss: f64 }", "f32 f64" of a tuple, "(f32 f64 )" of a struct.
template <HasParts T>
struct Signature<T> {
  static void append(const T& nest, std::string& text, Optionals optionals) {
    if constexpr (Optional<T>) {
      if (optionals == Optionals::by_type) {
        text += "optional";
      } else if (nest) {
        append_signature(*nest, text, optionals);
      } else {
        text += "nothing";
      }
    } else {
      constexpr std::string_view brackets = KeyedParts<T> ? "{}" : ListOfParts<T> ? "[]" : NestedStruct<T> ? "()" : "";
      text += brackets.substr(0, 1);
      const std::size_t begin = text.size();
      append_parts(nest, text, optionals);
      if (!brackets.empty()) {
        text += brackets.back();
      } else if (text.size() > begin) {
        text.pop_back();  // the space after the last part
      }
    }
  }

 private:
  static void append_part(const auto& part, std::string& text, Optionals optionals) {
    append_signature(part, text, optionals);
    text += ' ';
  }

  template <class K>
  static void append_key(const K& key, std::string& text) {
    if constexpr (std::convertible_to<K, std::string>) {
      text += std::string{key};
    } else if constexpr (ComparableAcrossRanks<K>) {
      text += comparable(key);
    } else {
      text += "a key";  // such a map is only passed on: nothing with such keys is reduced
    }
    text += ": ";
  }

  static void append_parts(const T& nest, std::string& text, Optionals optionals) {
    if constexpr (KeyedParts<T>) {
      PartsOf<T>::each(nest, [&](const auto& key, const auto& part) {
        append_key(key, text);
        append_part(part, text, optionals);
      });
    } else if constexpr (requires { requires Signature<typename PartsOf<T>::Part>::constant; }) {
      text += std::to_string(PartsOf<T>::count(nest)) + ' ';  // keeps the text of a long list short
      bool first = true;
      for_each_part(nest, [&](const typename PartsOf<T>::Part& part) {
        if (std::exchange(first, false)) append_signature(part, text, optionals);
      });
    } else {
      for_each_part(nest, [&](const auto& part) { append_part(part, text, optionals); });
    }
  }
};

template <class T>
std::string signature_of(const T& value, Optionals optionals = Optionals::with_presence) {
  std::string text;
  append_signature(value, text, optionals);
  return text;
}

/// " in [f32 f64]": how the leaves of a nest are arranged; empty for a nest of one leaf.
template <class T>
std::string structure_of(const T& nest) {
  if constexpr (ReducibleNumber<T> || std::same_as<T, Tensor> || std::same_as<T, IndexedSlices> ||
                std::same_as<T, SparseTensor>) {
    return {};
  } else {
    return " in " + signature_of(nest);
  }
}

// As bytes, for Strategy::broadcast_object.

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

/// What Strategy::broadcast_object can send: std::string, trivially copyable values without pointers, nests of those.
template <class T>
concept BroadcastableObject = is_object<T>();

/// Sent as its bytes in memory.
template <class T>
inline constexpr bool is_flat = std::is_trivially_copyable_v<T> && !NestedStruct<T> && !Optional<T>;

/// "Settings of 12 bytes".
LOCKSTEP_API std::string flat_layout(const std::type_info& type, std::size_t bytes);

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

}  // namespace lockstep::detail
