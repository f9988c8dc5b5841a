// What collectives take. Each type has a Description of what its values are made of, so the code that takes values
// apart is compiled once: into leaves that are reduced, into text that the ranks compare, into bytes that one of them
// sends.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/sparse_tensor.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/core/values/values.hpp>

namespace lockstep::detail {

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

template <class T>
constexpr bool is_object() {
  if constexpr (!std::is_object_v<T> || std::is_const_v<T> || std::is_array_v<T> || std::is_pointer_v<T> ||
                std::is_member_pointer_v<T> || std::is_null_pointer_v<T> || is_per_replica<T> || is_mirrored<T>) {
    return false;
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

/// Numbers that a tensor can hold: float, double, 32-bit and 64-bit signed integers, and 8-bit unsigned ones. Convert
/// others to one of these, such as a std::size_t or a bool to std::int64_t.
template <class T>
concept ReducibleNumber = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint8_t> ||
                          (std::signed_integral<T> && (sizeof(T) == 4 || sizeof(T) == 8) && !std::same_as<T, wchar_t>);

/// The tensor element that carries a number.
template <ReducibleNumber T>
using carrier_t = std::conditional_t<std::floating_point<T> || std::same_as<T, std::uint8_t>, T,
                                     std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;

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

/// A part of a nest that a reduction does not take apart further.
using Leaf = std::variant<Tensor, IndexedSlices>;

/// How signatures show a leaf of a type that has one: `static std::string of(const T&)`.
template <class T>
struct LeafText;
template <>
struct LOCKSTEP_API LeafText<SparseTensor> {
  static std::string of(const SparseTensor& value);
};

/// What the values of a type are made of, for code that walks them. A leaf has a LeafText, and a record is a struct
/// with a Nest. A range is compared by its elements, and any other value by its bytes.
struct Description {
  enum class Kind { number, text, tensor, slices, leaf, per_replica, mirrored, list, map, tuple, record, range, other };
  using Of = const Description& (*)();
  /// Gets the parts in order. `key` is null except in a map.
  using Visit = std::function<void(const Description& of_part, const void* part, const void* key)>;

  Kind kind;
  bool is_flat;      ///< sent as its bytes in memory
  bool is_optional;  ///< a list of one part or none
  bool grows;        ///< a list or map whose type does not fix the number of parts
  const std::type_info& type;
  std::size_t size;
  std::optional<DType> carrier = {};  ///< of a ReducibleNumber
  Of key = {};                        ///< of a map
  bool compares_keys = false;
  std::vector<Of> parts = {};              ///< the only one of a list or map, or all of a tuple or record
  std::string (*text)(const void*) = {};   ///< of a number, a text or a leaf
  std::size_t (*count)(const void*) = {};  ///< of a list or map; for null, of a T{}
  void (*each)(const void*, const Visit& visit) = {};
  std::shared_ptr<void> (*make_blank)() = {};  ///< a T{}; null if there is none
  void (*clear)(void*) = {};                   ///< assigns a T{}; null if there is none
  /// Makes a blank part, lets `fill` write it, and appends it to what grows. Null if a part cannot be made blank.
  void (*append)(void*, const Visit& fill) = {};
};

LOCKSTEP_API std::string text_of(double number);
LOCKSTEP_API std::string text_of(long long number);

template <class T>
const Description& description_of();

template <class T>
using ElementOf = std::remove_cvref_t<decltype(*std::declval<const T&>().begin())>;

/// A range whose elements are not ranges of its type, as those of a path are.
template <class T>
concept RangeOfOthers = requires(const T& range) { *range.begin(), range.end(); } && !std::same_as<ElementOf<T>, T>;

template <class T>
concept Blank = std::default_initializable<T> || BroadcastableObject<T>;

/// A value that is still to be written.
template <Blank T>
T blank() {
  if constexpr (std::default_initializable<T>) {
    return T{};
  } else if constexpr (std::is_trivially_copyable_v<T>) {
    return std::bit_cast<T>(std::array<std::byte, sizeof(T)>{});
  } else {
    return with_part_types<T>([]<class... P>() { return T{blank<P>()...}; });
  }
}

template <class T>
T& value_at(const void* address) {
  return *static_cast<T*>(const_cast<void*>(address));
}

template <class T>
void visit_part(const T& part, const Description::Visit& visit, const void* key = nullptr) {
  visit(description_of<T>(), &part, key);
}

template <class T>
Description describe_type() {
  using Kind = Description::Kind;
  using Visit = Description::Visit;
  constexpr bool is_flat = std::is_trivially_copyable_v<T> && !NestedStruct<T> && !Optional<T>;
  Description made{Kind::other, is_flat, Optional<T>, GrowingParts<T>, typeid(T), sizeof(T)};
  if constexpr (std::default_initializable<T>) made.make_blank = [] { return std::shared_ptr<void>{new T{}}; };
  if constexpr (std::default_initializable<T> && std::movable<T>) made.clear = [](void* v) { value_at<T>(v) = T{}; };
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    made.kind = Kind::number;
    if constexpr (ReducibleNumber<T>) made.carrier = dtype_of<carrier_t<T>>;
    using Shown = std::conditional_t<std::floating_point<T>, double, long long>;
    made.text = [](const void* value) { return text_of(static_cast<Shown>(value_at<T>(value))); };
  } else if constexpr (std::same_as<T, Tensor>) {
    made.kind = Kind::tensor;
  } else if constexpr (std::same_as<T, IndexedSlices>) {
    made.kind = Kind::slices;
  } else if constexpr (requires(const T& value) { LeafText<T>::of(value); }) {
    made.kind = Kind::leaf;
    made.text = [](const void* value) { return LeafText<T>::of(value_at<T>(value)); };
  } else if constexpr (is_per_replica<T>) {
    made.kind = Kind::per_replica;
    made.each = [](const void* value, const Visit& visit) { detail::visit_part(value_at<T>(value).local(), visit); };
  } else if constexpr (is_mirrored<T>) {
    made.kind = Kind::mirrored;
    made.each = [](const void* value, const Visit& visit) { detail::visit_part(value_at<T>(value).value(), visit); };
  } else if constexpr (FixedParts<T>) {
    made.kind = NestedStruct<T> ? Kind::record : Kind::tuple;
    made.parts = with_part_types<T>(
        []<class... P>() { return std::vector<Description::Of>{description_of<std::remove_cv_t<P>>...}; });
    made.each = [](const void* value, const Visit& visit) {
      std::apply([&](const auto&... part) { (detail::visit_part(part, visit), ...); },
                 PartsOf<T>::tie(value_at<T>(value)));
    };
  } else if constexpr (ListOfParts<T>) {
    using Part = typename PartsOf<T>::Part;
    made.parts = {description_of<Part>};
    made.count = [](const void* value) {
      if constexpr (std::default_initializable<T>)
        if (!value) return PartsOf<T>::count(T{});
      return PartsOf<T>::count(value_at<T>(value));
    };
    if constexpr (KeyedParts<T>) {
      using Key = typename PartsOf<T>::Key;
      made.kind = Kind::map;
      made.key = description_of<Key>;
      made.compares_keys = ComparableAcrossRanks<Key>;
      made.each = [](const void* value, const Visit& visit) {
        PartsOf<T>::each(value_at<T>(value),
                         [&](const Key& key, const Part& part) { detail::visit_part(part, visit, &key); });
      };
      if constexpr (Blank<Key> && Blank<Part>)
        made.append = [](void* list, const Visit& fill) {
          Key key = blank<Key>();
          Part part = blank<Part>();
          detail::visit_part(part, fill, &key);
          PartsOf<T>::add(value_at<T>(list), std::move(key), std::move(part));
        };
    } else {
      made.kind = Kind::list;
      made.each = [](const void* value, const Visit& visit) {
        PartsOf<T>::each(value_at<T>(value), [&]<class Each>(Each& each) {
          static_assert(std::same_as<std::remove_const_t<Each>, Part> || !is_reducible<Part>);  // or it sets a copy
          const Part& part = each;  // vector<bool> yields proxies
          detail::visit_part(part, visit);
        });
      };
      if constexpr (GrowingParts<T> && Blank<Part>)
        made.append = [](void* list, const Visit& fill) {
          Part part = blank<Part>();
          detail::visit_part(part, fill);
          PartsOf<T>::add(value_at<T>(list), std::move(part));
        };
    }
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    made.kind = Kind::text;
    made.text = [](const void* value) { return std::string{std::string_view{value_at<T>(value)}}; };
  } else if constexpr (RangeOfOthers<T>) {
    made.kind = Kind::range;
    made.each = [](const void* value, const Visit& visit) {
      for (auto&& each : std::as_const(value_at<T>(value))) detail::visit_part<ElementOf<T>>(each, visit);
    };
  }
  return made;
}

template <class T>
const Description& description_of() {
  static const Description made = describe_type<T>();
  return made;
}

/// A value of any type, for functions that may write to it.
struct AnyValue {
  template <class T>
    requires(!std::same_as<T, AnyValue>)
  AnyValue(T& value) : AnyValue{description_of<std::remove_const_t<T>>(), &value} {}
  AnyValue(const Description& of, const void* value) : type{of}, address{const_cast<void*>(value)} {}

  const Description& type;
  void* address;
};

/// By value, for Strategy::same_on_all: "5", "0.1", "'adam'", "[1 2]", or type and digest if that is too long.
/// Different values have different texts.
LOCKSTEP_API std::string comparable_text(AnyValue value);

/// How an optional is described: by what it holds, if anything, or by its type alone.
enum class Optionals { with_presence, by_type };

/// By structure and types, for the operands of a merge_call and the result of a run: "[3 f32]", "[f32 tensor i32 tensor
/// ]", "{loss: f64 }", "f32 f64" of a tuple, "(f32 f64 )" of a struct.
LOCKSTEP_API std::string signature(AnyValue value, Optionals optionals = Optionals::with_presence);

}  // namespace lockstep::detail
