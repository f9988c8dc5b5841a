// What a merge_call was given, and what a run returns, as text that the ranks compare: the structure and the types, not
// the values.
#pragma once

#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include <lockstep/strategy/same_on_all.hpp>
#include <lockstep/strategy/variable.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/nest.hpp>

namespace lockstep::detail {

template <class T>
void append_signature(const T& value, std::string& text);

/// "variable 'w' of strategy 0": an operand may be another strategy's.
std::string operand_text(const Variable& variable);

template <class T>
struct Signature {
  static void append(const T& value, std::string& text) {
    if constexpr (ReducibleNumber<T>) {
      text += name_of(dtype_of<carrier_t<T>>);
    } else if constexpr (std::same_as<T, Tensor>) {
      text += name_of(value.dtype());
      text += " tensor";
    } else if constexpr (std::same_as<T, IndexedSlices>) {
      text += name_of(value.values.dtype());
      text += " slices";
    } else if constexpr (NestedStruct<T>) {
      text += '(';
      std::apply([&](auto... member) { ((append_signature(value.*member, text), text += ' '), ...); },
                 Nest<T>::members);
      text += ')';
    } else if constexpr (std::derived_from<T, Variable>) {
      text += operand_text(value);
    } else {
      text += typeid(T).name();
    }
  }
};

template <class T>
void append_signature(const T& value, std::string& text) {
  Signature<T>::append(value, text);
}

template <class T>
struct Signature<PerReplica<T>> {
  static void append(const PerReplica<T>& value, std::string& text) { append_signature(value.local(), text); }
};
template <class T>
struct Signature<Mirrored<T>> {
  static void append(const Mirrored<T>& value, std::string& text) {
    text += "mirrored ";
    append_signature(value.value(), text);
  }
};
template <class T>
struct Signature<std::vector<T>> {
  static void append(const std::vector<T>& nest, std::string& text) {
    text += '[';
    if constexpr (ReducibleNumber<T>) {
      text += std::to_string(nest.size());  // many numbers are no long text
      text += ' ';
      text += name_of(dtype_of<carrier_t<T>>);
    } else {
      for (const T& leaf : nest) {
        append_signature(leaf, text);
        text += ' ';
      }
    }
    text += ']';
  }
};
template <class T>
struct Signature<std::optional<T>> {
  static void append(const std::optional<T>& nest, std::string& text) {
    if (nest) return append_signature(*nest, text);
    text += "nothing";
  }
};
template <class K, class T>
struct Signature<std::map<K, T>> {
  static void append(const std::map<K, T>& nest, std::string& text) {
    text += '{';
    for (const auto& [key, leaf] : nest) {
      if constexpr (std::convertible_to<K, std::string>) {
        text += std::string{key};
      } else if constexpr (ComparableAcrossRanks<K>) {
        text += comparable(key);
      } else {
        text += "a key";  // of what is only handed on: nothing with such keys is reduced
      }
      text += ": ";
      append_signature(leaf, text);
      text += ' ';
    }
    text += '}';
  }
};
template <class... T>
struct Signature<std::tuple<T...>> {
  static void append(const std::tuple<T...>& nest, std::string& text) {
    std::apply([&](const T&... leaf) { ((append_signature(leaf, text), text += ' '), ...); }, nest);
  }
};
template <class A, class B>
struct Signature<std::pair<A, B>> {
  static void append(const std::pair<A, B>& nest, std::string& text) {
    append_signature(nest.first, text);
    text += ' ';
    append_signature(nest.second, text);
  }
};

/// " in [f32 f64]": how the leaves of a nest hang together, for nests that are more than a leaf; empty otherwise.
template <class T>
std::string structure_of(const T& nest) {
  if constexpr (ReducibleNumber<T> || std::same_as<T, Tensor> || std::same_as<T, IndexedSlices>) {
    return {};
  } else {
    std::string text = " in ";
    append_signature(nest, text);
    return text;
  }
}

/// Empty for no arguments.
template <class T>
std::string signature_of(const T& value) {
  std::string text;
  append_signature(value, text);
  return text;
}

}  // namespace lockstep::detail
