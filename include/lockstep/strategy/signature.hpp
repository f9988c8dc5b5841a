// The operands of a merge_call and the result of a run, as text that the ranks compare: structure and types, not
// values.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <utility>

#include <lockstep/strategy/same_on_all.hpp>
#include <lockstep/strategy/variable.hpp>
#include <lockstep/tensor/sparse_tensor.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/nest.hpp>
#include <lockstep/values/parts.hpp>

namespace lockstep::detail {

/// How an optional is described: by what it holds, if anything, or by its type alone.
enum class Optionals { with_presence, by_type };

template <class T>
void append_signature(const T& value, std::string& text, Optionals optionals);

/// "variable 'w' of strategy 0": an operand may be another strategy's.
std::string operand_text(const Variable& variable);

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

/// " in [f32 f64]": how the leaves of a nest are arranged; empty for a nest of one leaf.
template <class T>
std::string structure_of(const T& nest) {
  if constexpr (ReducibleNumber<T> || std::same_as<T, Tensor> || std::same_as<T, IndexedSlices> ||
                std::same_as<T, SparseTensor>) {
    return {};
  } else {
    std::string text = " in ";
    append_signature(nest, text, Optionals::with_presence);
    return text;
  }
}

/// The signature of a merge_call's operands. Empty if there are none.
template <class... T>
std::string signature_of_operands(const std::tuple<T...>& operands) {
  std::string text;
  append_signature(operands, text, Optionals::with_presence);
  return text;
}

/// The signature of a run's result. Whether an optional holds a value may differ by rank, as after a reduction to one
/// replica.
template <class T>
std::string signature_of_result(const T& result) {
  std::string text;
  append_signature(result, text, Optionals::by_type);
  return text;
}

}  // namespace lockstep::detail
