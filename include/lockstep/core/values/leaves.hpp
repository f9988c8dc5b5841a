// What collectives take, and how the library takes it apart: into leaves that are reduced, into text that the ranks
// compare, into bytes that one of them sends. Each type has a table of what its values are made of, so the code that
// walks a nest is compiled once.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ranges>
#include <span>
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

/// Sent as its bytes in memory.
template <class T>
inline constexpr bool is_flat = std::is_trivially_copyable_v<T> && !NestedStruct<T> && !Optional<T>;

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

/// How signatures show a leaf of a type that has one: `static std::string of(const T&)`.
template <class T>
struct LeafText;
template <>
struct LOCKSTEP_API LeafText<SparseTensor> {
  static std::string of(const SparseTensor& value);
};

/// What the values of a type are made of, for code that walks them.
struct Description {
  /// A leaf has a LeafText. PerReplica and Mirrored have one part. A list has parts of one type, and a map keys too; a
  /// tuple, or a record, which is a struct with a Nest, has parts of types of their own. A range is compared by its
  /// elements, and any other value by its bytes.
  enum class Kind { number, text, tensor, slices, leaf, per_replica, mirrored, list, map, tuple, record, range, other };
  using Of = const Description& (*)();
  /// Gets the parts in order. `key` is null except in a map.
  using Visit = std::function<void(const Description& of_part, const void* part, const void* key)>;

  Kind kind;
  bool is_flat, is_optional, grows;  ///< `grows`: a list or map whose type does not fix the number of parts
  const std::type_info& type;
  std::size_t size;
  std::optional<DType> carrier = {};  ///< of a ReducibleNumber
  Of key = {};                        ///< of a map
  bool compares_keys = false;
  std::vector<Of> parts = {};              ///< of a tuple or record; the only one of a list or map
  std::string (*text)(const void*) = {};   ///< of a number, a text or a leaf
  std::size_t (*count)(const void*) = {};  ///< of a list or map; for null, of a T{}
  void (*each)(const void*, const Visit& visit) = {};
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
T& value_at(const void* address) {
  return *static_cast<T*>(const_cast<void*>(address));
}

template <class T>
Description describe_type() {
  using Kind = Description::Kind;
  using Visit = Description::Visit;
  Description made{Kind::other, is_flat<T>, Optional<T>, GrowingParts<T>, typeid(T), sizeof(T)};
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
  } else if constexpr (is_per_replica<T> || is_mirrored<T>) {
    made.kind = is_mirrored<T> ? Kind::mirrored : Kind::per_replica;
    made.each = [](const void* value, const Visit& visit) {
      const auto visit_part = [&]<class P>(const P& part) { visit(description_of<P>(), &part, nullptr); };
      if constexpr (is_mirrored<T>) {
        visit_part(value_at<T>(value).value());
      } else {
        visit_part(value_at<T>(value).local());
      }
    };
  } else if constexpr (FixedParts<T>) {
    made.kind = NestedStruct<T> ? Kind::record : Kind::tuple;
    made.parts = with_part_types<T>(
        []<class... P>() { return std::vector<Description::Of>{description_of<std::remove_cv_t<P>>...}; });
    made.each = [](const void* value, const Visit& visit) {
      for_each_part(value_at<T>(value),
                    [&]<class P>(P& part) { visit(description_of<std::remove_cv_t<P>>(), &part, nullptr); });
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
      made.kind = Kind::map;
      made.key = description_of<typename PartsOf<T>::Key>;
      made.compares_keys = ComparableAcrossRanks<typename PartsOf<T>::Key>;
      made.each = [](const void* value, const Visit& visit) {
        PartsOf<T>::each(value_at<T>(value),
                         [&](const auto& key, auto& part) { visit(description_of<Part>(), &part, &key); });
      };
    } else {
      made.kind = Kind::list;
      made.each = [](const void* value, const Visit& visit) {
        PartsOf<T>::each(value_at<T>(value), [&]<class Each>(Each& each) {
          static_assert(std::same_as<std::remove_const_t<Each>, Part> || !is_reducible<Part>);  // or it sets a copy
          const Part& part = each;  // vector<bool> yields proxies
          visit(description_of<Part>(), &part, nullptr);
        });
      };
    }
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    made.kind = Kind::text;
    made.text = [](const void* value) { return std::string{std::string_view{value_at<T>(value)}}; };
  } else if constexpr (RangeOfOthers<T>) {
    made.kind = Kind::range;
    made.each = [](const void* value, const Visit& visit) {
      for (auto&& each : std::as_const(value_at<T>(value))) {
        const ElementOf<T>& part = each;
        visit(description_of<ElementOf<T>>(), &part, nullptr);
      }
    };
  }
  return made;
}

template <class T>
const Description& description_of() {
  static const Description made = describe_type<T>();
  return made;
}

/// A part of a nest that a reduction does not take apart further.
using Leaf = std::variant<Tensor, IndexedSlices>;

LOCKSTEP_API std::vector<Leaf> leaves_in(const Description& description, const void* nest);
LOCKSTEP_API void set_leaves(const Description& description, void* nest, std::span<const Leaf> leaves);
LOCKSTEP_API std::string comparable_text(const Description& description, const void* value);

/// How an optional is described: by what it holds, if anything, or by its type alone.
enum class Optionals { with_presence, by_type };
LOCKSTEP_API void append_signature(const Description& of, const void* value, Optionals optionals, std::string& text);
LOCKSTEP_API std::string layout_text(const Description& description);
LOCKSTEP_API void append_bytes(const Description& description, const void* value, std::vector<std::byte>& bytes);
/// Removes as many bytes from the front and writes them to `to`.
LOCKSTEP_API void take_bytes(std::span<const std::byte>& bytes, std::span<std::byte> to);

/// All leaves of `nest`, in the order of for_each_leaf. A number is a tensor of its carrier_t, on the host.
template <Reducible T>
std::vector<Leaf> leaves_of(const T& nest) {
  return detail::leaves_in(description_of<T>(), &nest);
}

/// A nest like `like` with these leaves.
template <Reducible T>
T with_leaves(const T& like, std::span<const Leaf> leaves) {
  T made = like;
  detail::set_leaves(description_of<T>(), &made, leaves);
  return made;
}

/// By value, for Strategy::same_on_all: "5", "0.1", "'adam'", "[1 2]", or type and digest if that is too long.
/// Different values have different texts.
template <ComparableAcrossRanks T>
std::string comparable(const T& value) {
  return detail::comparable_text(description_of<T>(), &value);
}

/// By structure and types, for the operands of a merge_call and the result of a run: "[3 f32]", "[f32 tensor i32 tensor
/// ]", "{loss: f64 }", "f32 f64" of a tuple, "(f32 f64 )" of a struct.
template <class T>
std::string signature_of(const T& value, Optionals optionals = Optionals::with_presence) {
  std::string text;
  if constexpr (!std::same_as<T, std::tuple<>>) detail::append_signature(description_of<T>(), &value, optionals, text);
  return text;
}

/// " in [f32 f64]": how the leaves of a nest are arranged; empty for a nest of one leaf.
template <class T>
std::string structure_of(const T& nest) {
  return HasParts<T> ? " in " + signature_of(nest) : "";
}

// As bytes, for Strategy::broadcast_object. What the ranks compare before they send: "text", "[Settings of 12 bytes]",
// "(int of 4 bytes, text)".

template <BroadcastableObject T>
std::string object_layout() {
  return layout_text(description_of<T>());
}

template <BroadcastableObject T>
void append_object(const T& value, std::vector<std::byte>& bytes) {
  detail::append_bytes(description_of<T>(), &value, bytes);
}

/// Removes the value at the front of `bytes` and returns it. Inverts append_object.
template <BroadcastableObject T>
T take_object(std::span<const std::byte>& bytes);

/// What read_parts reads objects from.
struct ObjectReader {
  std::span<const std::byte>& bytes;

  std::size_t count() const { return static_cast<std::size_t>(take_object<std::uint64_t>(bytes)); }
  template <class K>
  K key() const {
    return take_object<K>(bytes);
  }
  template <class P>
  P part() const {
    return take_object<P>(bytes);
  }
};

template <BroadcastableObject T>
T take_object(std::span<const std::byte>& bytes) {
  if constexpr (is_flat<T>) {
    std::array<std::byte, sizeof(T)> raw;
    take_bytes(bytes, raw);
    return std::bit_cast<T>(raw);
  } else if constexpr (std::same_as<T, std::string>) {
    std::string text(static_cast<std::size_t>(take_object<std::uint64_t>(bytes)), ' ');
    take_bytes(bytes, std::as_writable_bytes(std::span{text}));
    return text;
  } else {
    return read_parts<T>(ObjectReader{bytes});
  }
}

}  // namespace lockstep::detail
