// The shapes of nests: how vectors, optionals, maps, tuples, pairs, arrays and structs with a Nest are made of parts.
// All code that reduces, gathers, compares, describes or sends nests learns their shapes here, so a shape that is added
// here works everywhere. This adds std::deque:
//
//   template <class T>
//   struct lockstep::detail::PartsOf<std::deque<T>> : Sequence<std::deque<T>> {
//     template <template <class> class To>
//     using Each = std::deque<To<T>>;
//   };
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// Makes your own struct a nest. Specialise it with the members that are leaves or nests:
///   template <>
///   struct lockstep::Nest<Metrics> {
///     static constexpr auto members = std::tuple{&Metrics::loss, &Metrics::hits};
///   };
/// Members that are not named are neither sent nor compared, and keep their values.
template <class T>
struct Nest;

namespace detail {

/// A struct with a Nest. Tuples, maps and other nests need none.
template <class T>
concept NestedStruct = requires { Nest<T>::members; };

/// How a T is made of parts. Not defined for types without parts. There are two kinds:
///
/// - In a list, any number of parts have one type, `Part`. `count(list)` says how many there are, and `each(list,
///   visit)` calls `visit(part)` in order. If parts have keys, `Key` is their type, and `visit(key, part)` is called.
///   `add(list, part)`, or `add(list, key, part)`, appends a part, keys in order; in a list without `add`, the type
///   fixes the number of parts.
/// - Otherwise `tie(nest)` is a tuple of references to the parts.
///
/// `Each<To>` is the same shape with parts of the types To<T>. Without it, a T stays whole in a merge function: a
/// PerReplica<T>.
template <class T>
struct PartsOf;

template <class T>
concept ListOfParts = requires { typename PartsOf<T>::Part; };
template <class T>
concept KeyedParts = ListOfParts<T> && requires { typename PartsOf<T>::Key; };
template <class T>
concept FixedParts = requires(T& nest) { PartsOf<T>::tie(nest); };

/// A list whose number of parts is not in its type.
template <class T>
concept GrowingParts =
    KeyedParts<T> ||
    (ListOfParts<T> && requires(T& list, typename PartsOf<T>::Part part) { PartsOf<T>::add(list, std::move(part)); });

template <class T>
concept HasParts = ListOfParts<T> || FixedParts<T>;

template <class T>
concept RebuildsParts =
    HasParts<T> && requires { std::type_identity<typename PartsOf<T>::template Each<std::type_identity>>{}; };

template <class T>
concept Optional = std::same_as<T, std::optional<typename T::value_type>>;

/// Base of PartsOf for a container with push_back. It lacks only `Each`.
template <class List>
struct Sequence {
  using Part = typename List::value_type;

  static std::size_t count(const List& list) { return list.size(); }
  static void each(auto& list, const auto& visit) {
    for (auto&& part : list) visit(part);  // vector<bool> yields proxies
  }
  static void add(List& list, Part part) { list.push_back(std::move(part)); }
};

template <class T>
struct PartsOf<std::vector<T>> : Sequence<std::vector<T>> {
  template <template <class> class To>
  using Each = std::vector<To<T>>;
};

/// A list of one part or none.
template <class T>
struct PartsOf<std::optional<T>> {
  using Part = T;
  template <template <class> class To>
  using Each = std::optional<To<T>>;

  static std::size_t count(const std::optional<T>& optional) { return optional ? 1 : 0; }
  static void each(auto& optional, const auto& visit) {
    if (optional) visit(*optional);
  }
  static void add(std::optional<T>& optional, T part) { optional.emplace(std::move(part)); }
};

template <class K, class T>
struct PartsOf<std::map<K, T>> {
  using Key = K;
  using Part = T;
  template <template <class> class To>
  using Each = std::map<K, To<T>>;

  static std::size_t count(const std::map<K, T>& map) { return map.size(); }
  static void each(auto& map, const auto& visit) {
    for (auto& [key, part] : map) visit(key, part);
  }
  static void add(std::map<K, T>& map, K key, T part) { map.emplace_hint(map.end(), std::move(key), std::move(part)); }
};

/// No `Each`: the parts that a merge function would get may have no default constructor.
template <class T, std::size_t size>
struct PartsOf<std::array<T, size>> : Sequence<std::array<T, size>> {
  static void add() = delete;  // the type fixes the number of parts
};

struct TupleOfParts {
  static auto tie(auto& tuple) {
    return std::apply([](auto&... part) { return std::tie(part...); }, tuple);
  }
};
template <class... T>
struct PartsOf<std::tuple<T...>> : TupleOfParts {
  template <template <class> class To>
  using Each = std::tuple<To<T>...>;
};
template <class A, class B>
struct PartsOf<std::pair<A, B>> : TupleOfParts {
  template <template <class> class To>
  using Each = std::pair<To<A>, To<B>>;
};

/// The members that the Nest names. No `Each`: a struct's members have the types that they have.
template <NestedStruct T>
struct PartsOf<T> {
  static auto tie(auto& nest) {
    return std::apply([&](auto... member) { return std::tie(nest.*member...); }, Nest<T>::members);
  }
};

/// Calls `body.template operator()<P...>()` with the types of the parts: all of them, or the one of a list.
template <HasParts T, class Body>
constexpr auto with_part_types(Body body) {
  if constexpr (ListOfParts<T>) {
    return body.template operator()<typename PartsOf<T>::Part>();
  } else {
    using Parts = std::type_identity<decltype(PartsOf<T>::tie(std::declval<T&>()))>;
    return [&]<class... P>(std::type_identity<std::tuple<P&...>>) { return body.template operator()<P...>(); }(Parts{});
  }
}

/// A nest of type Made in the shape of `nest`. Each part, of type P, becomes `make.template operator()<P>(part)`.
template <class Made, HasParts T, class Make>
Made map_parts(T& nest, const Make& make) {
  if constexpr (FixedParts<T>) {
    // Braces: the only call syntax whose arguments are evaluated in order.
    return std::apply([&]<class... P>(P&... part) { return Made{make.template operator()<P>(part)...}; },
                      PartsOf<T>::tie(nest));
  } else {
    using P = typename PartsOf<T>::Part;
    Made made;
    if constexpr (requires { made.reserve(PartsOf<T>::count(nest)); }) made.reserve(PartsOf<T>::count(nest));
    if constexpr (KeyedParts<T>) {
      PartsOf<T>::each(nest, [&](auto& k, P& part) { PartsOf<Made>::add(made, k, make.template operator()<P>(part)); });
    } else {
      PartsOf<T>::each(nest, [&](auto&& part) { PartsOf<Made>::add(made, make.template operator()<P>(part)); });
    }
    return made;
  }
}

}  // namespace detail
}  // namespace lockstep
