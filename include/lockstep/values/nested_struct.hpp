// Structs whose members the library knows by name, so that it can reduce and compare them.
#pragma once

#include <tuple>

namespace lockstep {

/// Makes your own struct a nest. Specialise it with the members that are leaves or nests:
///   template <>
///   struct lockstep::Nest<Metrics> {
///     static constexpr auto members = std::tuple{&Metrics::loss, &Metrics::hits};
///   };
/// Members that are not named are neither sent nor compared, and keep their values.
template <class T>
struct Nest;

/// A struct with a Nest. Tuples, maps and other nests need none.
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

/// Calls `body.template operator()<M...>()` with the types of the named members.
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
