// Structs whose members are known by name: what is reduced of them, and what is compared.
#pragma once

#include <tuple>

namespace lockstep {

/// Makes a struct of your own a nest: specialise it with the members that are its leaves, or nests themselves.
///   template <>
///   struct lockstep::Nest<Metrics> {
///     static constexpr auto members = std::tuple{&Metrics::loss, &Metrics::hits};
///   };
/// Members that are not named are never sent, nor compared, and keep what they hold.
template <class T>
struct Nest;

/// A struct with a Nest. Tuples, maps and the like need none.
template <class T>
concept NestedStruct = requires {
  Nest<T>::members;
};

namespace detail {

template <class Member>
struct MemberType;
template <class Owner, class T>
struct MemberType<T Owner::*> {
  using type = T;
};

/// Calls `body.template operator()<M...>()` with the types of a struct's members.
template <NestedStruct T, class Body>
constexpr decltype(auto) with_member_types(Body&& body) {
  return std::apply(
      [&](auto... member) -> decltype(auto) {
        return body.template operator()<typename MemberType<decltype(member)>::type...>();
      },
      Nest<T>::members);
}

}  // namespace detail

}  // namespace lockstep
