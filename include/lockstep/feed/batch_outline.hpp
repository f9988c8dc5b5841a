// The outline of a batch: its structure without its samples. For each tensor it holds the element type, the device and
// all extents except the first. A rank that has a batch sends the outline, as numbers, to the ranks that have none.
//
//   const std::vector<std::int64_t> outline = outline_of(batch);      // a std::pair of f32[32, 784] and i64[32]
//   const auto empty = batch_without_samples<Batch>(outline, stream);  // f32[0, 784] and i64[0]
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/nested_struct.hpp>
#include <lockstep/values/values.hpp>

namespace lockstep::detail {

/// Encodes an outline.
class OutlineWriter {
 public:
  /// `type` is the name of the batch's type.
  explicit OutlineWriter(const char* type);

  void add(std::int64_t number) { numbers_.push_back(number); }
  void add(const Shape& shape);
  void add(const TensorView& tensor);

  std::vector<std::int64_t> take() { return std::move(numbers_); }

 private:
  std::vector<std::int64_t> numbers_;
};

/// Decodes an outline, in the order in which it was written.
class OutlineReader {
 public:
  /// MismatchError if the outline describes another type. `stream` is the stream of this rank's device.
  OutlineReader(std::span<const std::int64_t> outline, const char* type, Stream& stream);

  std::int64_t number();
  Shape shape();

  /// The tensor, with a first extent of 0. A tensor without extents holds 0.
  Tensor tensor();

 private:
  std::span<const std::int64_t> left_;
  Stream& stream_;
};

/// How to outline a T. If `needed` is false, nothing is written, and a T without samples is a T{}.
template <class T>
struct Outline {
  static constexpr bool needed = false;
};

template <class T>
void write_outline(const T& value, OutlineWriter& writer) {
  if constexpr (Outline<T>::needed) Outline<T>::write(value, writer);
}

template <class T>
T read_outline(OutlineReader& reader) {
  if constexpr (Outline<T>::needed) {
    return Outline<T>::read(reader);
  } else {
    return T{};
  }
}

template <>
struct Outline<Tensor> {
  static constexpr bool needed = true;
  static void write(const Tensor& tensor, OutlineWriter& writer) { writer.add(tensor.view()); }
  static Tensor read(OutlineReader& reader) { return reader.tensor(); }
};

template <>
struct Outline<IndexedSlices> {
  static constexpr bool needed = true;
  static void write(const IndexedSlices& slices, OutlineWriter& writer) {
    writer.add(slices.values.view());
    writer.add(slices.indices.view());
    writer.add(slices.dense_shape);
  }
  static IndexedSlices read(OutlineReader& reader) {
    return {.values = reader.tensor(), .indices = reader.tensor(), .dense_shape = reader.shape()};
  }
};

template <NestedStruct T>
struct Outline<T> {
  static constexpr bool needed = with_member_types<T>([]<class... M>() { return (Outline<M>::needed || ...); });
  static void write(const T& value, OutlineWriter& writer) {
    std::apply([&](auto... member) { (write_outline(value.*member, writer), ...); }, Nest<T>::members);
  }
  static T read(OutlineReader& reader) {
    T made{};
    std::apply([&](auto... member) { (read_into(made.*member, reader), ...); }, Nest<T>::members);
    return made;
  }

 private:
  template <class M>
  static void read_into(M& member, OutlineReader& reader) {
    member = read_outline<M>(reader);
  }
};

/// A vector of tensors is a list and keeps its length. Any other vector holds the samples themselves and becomes empty.
template <class T>
struct Outline<std::vector<T>> {
  static constexpr bool needed = Outline<T>::needed;
  static void write(const std::vector<T>& list, OutlineWriter& writer) {
    writer.add(static_cast<std::int64_t>(list.size()));
    for (const T& each : list) write_outline(each, writer);
  }
  static std::vector<T> read(OutlineReader& reader) {
    std::vector<T> made;
    for (std::int64_t left = reader.number(); left > 0; --left) made.push_back(read_outline<T>(reader));
    return made;
  }
};

template <class T>
struct Outline<std::optional<T>> {
  static constexpr bool needed = Outline<T>::needed;
  static void write(const std::optional<T>& value, OutlineWriter& writer) {
    writer.add(value.has_value());
    if (value) write_outline(*value, writer);
  }
  static std::optional<T> read(OutlineReader& reader) {
    return reader.number() == 0 ? std::nullopt : std::optional{read_outline<T>(reader)};
  }
};

template <class K>
concept OutlineKey = std::integral<K> || std::is_enum_v<K> || std::same_as<K, std::string>;

/// A map keeps its keys, whatever its values are.
template <OutlineKey K, class T>
struct Outline<std::map<K, T>> {
  static constexpr bool needed = true;
  static void write(const std::map<K, T>& map, OutlineWriter& writer) {
    writer.add(static_cast<std::int64_t>(map.size()));
    for (const auto& [key, value] : map) {
      write_key(key, writer);
      write_outline(value, writer);
    }
  }
  static std::map<K, T> read(OutlineReader& reader) {
    std::map<K, T> made;
    for (std::int64_t left = reader.number(); left > 0; --left) {
      K key = read_key(reader);
      made.emplace_hint(made.end(), std::move(key), read_outline<T>(reader));
    }
    return made;
  }

 private:
  static void write_key(const K& key, OutlineWriter& writer) {
    if constexpr (std::same_as<K, std::string>) {
      writer.add(static_cast<std::int64_t>(key.size()));
      for (const char each : key) writer.add(each);
    } else {
      writer.add(static_cast<std::int64_t>(key));
    }
  }
  static K read_key(OutlineReader& reader) {
    if constexpr (std::same_as<K, std::string>) {
      std::string key;
      for (std::int64_t left = reader.number(); left > 0; --left) key += static_cast<char>(reader.number());
      return key;
    } else {
      return static_cast<K>(reader.number());
    }
  }
};

template <class... T>
struct Outline<std::tuple<T...>> {
  static constexpr bool needed = (Outline<T>::needed || ...);
  static void write(const std::tuple<T...>& tuple, OutlineWriter& writer) {
    std::apply([&](const T&... each) { (write_outline(each, writer), ...); }, tuple);
  }
  static std::tuple<T...> read(OutlineReader& reader) {
    // Braces: the only call syntax whose arguments are evaluated in order.
    return std::tuple<T...>{read_outline<T>(reader)...};
  }
};

template <class A, class B>
struct Outline<std::pair<A, B>> {
  static constexpr bool needed = Outline<A>::needed || Outline<B>::needed;
  static void write(const std::pair<A, B>& pair, OutlineWriter& writer) {
    write_outline(pair.first, writer);
    write_outline(pair.second, writer);
  }
  static std::pair<A, B> read(OutlineReader& reader) {
    A first = read_outline<A>(reader);
    return {std::move(first), read_outline<B>(reader)};
  }
};

template <class Batch>
std::vector<std::int64_t> outline_of(const Batch& batch) {
  OutlineWriter writer{typeid(Batch).name()};
  write_outline(batch, writer);
  return writer.take();
}

/// A batch without samples, otherwise like the outlined one. MismatchError if the outline describes another type.
template <class Batch>
Batch batch_without_samples(std::span<const std::int64_t> outline, Stream& stream) {
  OutlineReader reader{outline, typeid(Batch).name(), stream};
  return read_outline<Batch>(reader);
}

}  // namespace lockstep::detail
