// The outline of a batch: its structure without its samples. For each tensor it holds the element type, the device and
// all extents except the first. A rank that has a batch sends the outline, as numbers, to the ranks that have none.
//
//   const std::vector<std::int64_t> outline = outline_of(batch);      // a std::pair of f32[32, 784] and i64[32]
//   const auto empty = batch_without_samples<Batch>(outline, stream);  // f32[0, 784] and i64[0]
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/core/values/values.hpp>

namespace lockstep::detail {

/// Decodes an outline, in the order in which it was written.
class LOCKSTEP_API OutlineReader {
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

/// The keys of a map that are part of its outline. A map with others is empty where there are no samples.
template <class K>
concept OutlineKey = std::integral<K> || std::is_enum_v<K> || std::same_as<K, std::string>;

/// Whether there is something to outline in a T. If not, nothing is written, and a T without samples is a T{}: a vector
/// of tensors is a list and keeps its length, and any other vector holds the samples themselves and becomes empty.
template <class T>
constexpr bool needs_outline() {
  if constexpr (KeyedParts<T>) {
    return OutlineKey<typename PartsOf<T>::Key>;  // whatever its values are
  } else if constexpr (HasParts<T>) {
    return with_part_types<T>([]<class... P>() { return (needs_outline<P>() || ...); });
  } else {
    return std::same_as<T, Tensor> || std::same_as<T, IndexedSlices>;
  }
}

template <class T>
T read_outline(OutlineReader& reader);

/// What read_parts reads outlines from.
struct OutlineParts {
  OutlineReader& reader;

  std::size_t count() const { return static_cast<std::size_t>(reader.number()); }
  template <class K>
  K key() const {
    if constexpr (std::same_as<K, std::string>) {
      std::string key;
      for (std::int64_t left = reader.number(); left > 0; --left) key += static_cast<char>(reader.number());
      return key;
    } else {
      return static_cast<K>(reader.number());
    }
  }
  template <class P>
  P part() const {
    return read_outline<P>(reader);
  }
};

template <class T>
T read_outline(OutlineReader& reader) {
  if constexpr (!needs_outline<T>()) {
    return T{};
  } else if constexpr (std::same_as<T, Tensor>) {
    return reader.tensor();
  } else if constexpr (std::same_as<T, IndexedSlices>) {
    return {.values = reader.tensor(), .indices = reader.tensor(), .dense_shape = reader.shape()};
  } else {
    return read_parts<T>(OutlineParts{reader});
  }
}

/// The outline of what `batch`, described so, holds.
LOCKSTEP_API std::vector<std::int64_t> outline_at(const Description& description, const void* batch);

template <class Batch>
std::vector<std::int64_t> outline_of(const Batch& batch) {
  return outline_at(description_of<Batch>(), &batch);
}

/// A batch without samples, otherwise like the outlined one. MismatchError if the outline describes another type.
template <class Batch>
Batch batch_without_samples(std::span<const std::int64_t> outline, Stream& stream) {
  OutlineReader reader{outline, typeid(Batch).name(), stream};
  return read_outline<Batch>(reader);
}

}  // namespace lockstep::detail
