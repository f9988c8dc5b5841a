// The operands of a merge_call and the result of a run, as text that the ranks compare: structure and types, not
// values.
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
#include <lockstep/tensor/sparse_tensor.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/nest.hpp>

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
                                   !std::same_as<T, SparseTensor> && !NestedStruct<T> &&
                                   !std::derived_from<T, Variable>;

  static void append(const T& value, std::string& text, Optionals optionals) {
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
    } else if constexpr (NestedStruct<T>) {
      text += '(';
      std::apply([&](auto... member) { ((append_signature(value.*member, text, optionals), text += ' '), ...); },
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
template <class T>
struct Signature<std::vector<T>> {
  static void append(const std::vector<T>& nest, std::string& text, Optionals optionals) {
    text += '[';
    constexpr bool alike = requires {
      requires Signature<T>::constant;
    };
    if (alike) text += std::to_string(nest.size()) + ' ';  // keeps the text of a long list short
    for (const T& leaf : nest) {
      append_signature(leaf, text, optionals);
      if (alike) break;
      text += ' ';
    }
    text += ']';
  }
};
template <class T>
struct Signature<std::optional<T>> {
  static void append(const std::optional<T>& nest, std::string& text, Optionals optionals) {
    if (optionals == Optionals::by_type) {
      text += "optional";
    } else if (nest) {
      append_signature(*nest, text, optionals);
    } else {
      text += "nothing";
    }
  }
};
template <class K, class T>
struct Signature<std::map<K, T>> {
  static void append(const std::map<K, T>& nest, std::string& text, Optionals optionals) {
    text += '{';
    for (const auto& [key, leaf] : nest) {
      if constexpr (std::convertible_to<K, std::string>) {
        text += std::string{key};
      } else if constexpr (ComparableAcrossRanks<K>) {
        text += comparable(key);
      } else {
        text += "a key";  // such a map is only passed on: nothing with such keys is reduced
      }
      text += ": ";
      append_signature(leaf, text, optionals);
      text += ' ';
    }
    text += '}';
  }
};
template <class... T>
struct Signature<std::tuple<T...>> {
  static void append(const std::tuple<T...>& nest, std::string& text, Optionals optionals) {
    std::apply([&](const T&... leaf) { ((append_signature(leaf, text, optionals), text += ' '), ...); }, nest);
  }
};
template <class A, class B>
struct Signature<std::pair<A, B>> {
  static void append(const std::pair<A, B>& nest, std::string& text, Optionals optionals) {
    append_signature(nest.first, text, optionals);
    text += ' ';
    append_signature(nest.second, text, optionals);
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
