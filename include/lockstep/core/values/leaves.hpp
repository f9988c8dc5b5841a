// What collectives take: which nests (nest.hpp) can be reduced, gathered or compared, which type a reduction returns,
// and how a nest is taken apart into leaves and put together again.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/core/values/values.hpp>

namespace lockstep {

class StrategyExtended;

namespace detail {

template <class T>
constexpr bool is_comparable() {
  if constexpr (std::is_pointer_v<T>) {
    return false;  // an address means something else in another process
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, Tensor> ||
                       std::convertible_to<const T&, std::string_view>) {
    return true;
  } else if constexpr (KeyedParts<T>) {
    return is_comparable<typename PartsOf<T>::Key>() && is_comparable<typename PartsOf<T>::Part>();
  } else if constexpr (HasParts<T>) {
    return with_part_types<T>([]<class... P>() { return (is_comparable<std::remove_cv_t<P>>() && ...); });
  } else if constexpr (requires(const T& range) { range.begin(), range.end(); }) {
    return is_comparable<std::remove_cvref_t<decltype(*std::declval<const T&>().begin())>>();
  } else {
    return std::has_unique_object_representations_v<T>;  // compared by their bytes
  }
}

/// A host value that ranks can compare: numbers, enums, text, tensors; containers, optionals and tuples of those;
/// structs, by the members that their Nest names; and plain structs without padding.
template <class T>
concept ComparableAcrossRanks = is_comparable<T>();

/// Numbers that a tensor can hold: float, double, 32-bit and 64-bit signed integers, and 8-bit unsigned ones. Convert
/// others to one of these, such as a std::size_t or a bool to std::int64_t.
template <class T>
concept ReducibleNumber = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint8_t> ||
                          (std::signed_integral<T> && (sizeof(T) == 4 || sizeof(T) == 8) && !std::same_as<T, wchar_t>);

/// Whether T is a leaf, for which `is_leaf.template operator()<T>()` is true, or a nest of leaves. The ranks compare
/// the keys of maps.
template <class T, class IsLeaf>
constexpr bool is_nest(IsLeaf is_leaf) {
  if constexpr (KeyedParts<T>) {
    return ComparableAcrossRanks<typename PartsOf<T>::Key> && is_nest<typename PartsOf<T>::Part>(is_leaf);
  } else if constexpr (HasParts<T>) {
    return with_part_types<T>([]<class... P>() { return (is_nest<P>(IsLeaf{}) && ...); });
  } else {
    return is_leaf.template operator()<T>();
  }
}

template <class T>
inline constexpr bool is_reducible = is_nest<T>([]<class Leaf>() {
  return std::same_as<Leaf, Tensor> || ReducibleNumber<Leaf> || std::same_as<Leaf, IndexedSlices>;
});
template <class T>
inline constexpr bool is_gatherable = is_nest<T>([]<class Leaf>() { return std::same_as<Leaf, Tensor>; });

/// What a reduction accepts. Compilers show the line of the concept, with its comment, if they refuse a type.
template <class T>
concept Reducible = is_reducible<T>;  // float, double, int32_t, int64_t, uint8_t, Tensor; nests; structs with a Nest<T>

/// What a gather accepts: tensors, which keep their type when they get more rows. Not numbers, since gathered numbers
/// are a tensor, and not slices, since their sum already has the rows of all ranks.
template <class T>
concept Gatherable = is_gatherable<T>;  // Tensor (for a number, one of shape [1]); nests; structs with a Nest<T>

/// The results of `map` for the items that this rank processed, in order. Ranks may hold different numbers of results;
/// `items` is the same on every rank.
template <class T>
class MapOutput {
 public:
  const std::vector<T>& values() const { return values_; }

  /// The number of items on all ranks together.
  std::int64_t items() const { return items_; }

 private:
  friend class lockstep::StrategyExtended;
  MapOutput(std::vector<T> values, std::int64_t items) : values_{std::move(values)}, items_{items} {}

  std::vector<T> values_;
  std::int64_t items_;
};

/// The result of `reduce_to` for a T, if every rank gets it: Mirrored, except for a plain value, which stays plain.
/// `Part` is the type that is added up. A Mirrored is not added up, so its type may be any, and its `Part` is a number.
template <class T>
struct ReductionOf {
  using Part = T;
  using type = T;
};
template <class T>
struct ReductionOf<Mirrored<T>> {
  using Part = int;
  using type = Mirrored<T>;
};
template <class T>
struct ReductionOf<PerReplica<T>> {
  using Part = T;
  using type = Mirrored<T>;
};
template <class T>
struct ReductionOf<PerReplica<MapOutput<T>>> {
  using Part = T;
  using type = Mirrored<T>;
};

template <class T>
using reduced_t = typename ReductionOf<T>::type;

/// What `reduce_to` accepts: a PerReplica of what is Reducible, or of the results of a `map`; a plain value that is;
/// and any Mirrored.
template <class T>
concept ReducibleValue = Reducible<typename ReductionOf<T>::Part>;

/// A number, or a value of a type that no collective of StrategyExtended takes.
template <class T>
concept PlainHostValue = ReducibleNumber<T> || !(Reducible<T> || is_mirrored<T> || is_per_replica<T>);

/// A part of a nest that a reduction does not take apart further.
using Leaf = std::variant<Tensor, IndexedSlices>;

/// The tensor element that carries a number.
template <ReducibleNumber T>
using carrier_t = std::conditional_t<std::floating_point<T> || std::same_as<T, std::uint8_t>, T,
                                     std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;

/// All leaves of `nest`, in the order of for_each_leaf.
template <Reducible T>
std::vector<Leaf> leaves_of(const T& nest) {
  std::vector<Leaf> leaves;
  for_each_leaf(nest, [&]<class L>(const L& leaf) {
    if constexpr (ReducibleNumber<L>) {
      leaves.push_back(Tensor::scalar(static_cast<carrier_t<L>>(leaf)));
    } else {
      leaves.push_back(leaf);
    }
  });
  return leaves;
}

/// A nest like `like` with these leaves.
template <Reducible T>
T with_leaves(const T& like, std::span<const Leaf> leaves) {
  T made = like;
  std::size_t next = 0;
  for_each_leaf(made, [&]<class L>(L& leaf) {
    const Leaf& given = leaves[next++];
    if constexpr (ReducibleNumber<L>) {
      leaf = static_cast<L>(std::get<Tensor>(given).item<carrier_t<L>>(Here{}));
    } else {
      leaf = std::get<L>(given);
    }
  });
  return made;
}

}  // namespace detail
}  // namespace lockstep
