// Values whose locality is their type. A process holds only its own component.
#pragma once

#include <utility>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep {

/// A value that may differ on every rank. Only a collective reaches another rank's component.
template <class T>
class PerReplica {
 public:
  explicit PerReplica(T local) : local_{std::move(local)} {}

  /// This rank's component.
  const T& local() const& { return local_; }
  T local() && { return std::move(local_); }

  template <class Index>
  const T& operator[](Index) const = delete;  // a process holds its own component only: local()

 private:
  T local_;
};

/// What `Strategy::run` returns for a function without a result.
template <>
class PerReplica<void> {};

namespace detail {
struct MirroredAccess;
}

/// A value that is the same on every rank. Made by collectives and by `Strategy::same_on_all`, never by hand.
template <class T>
class Mirrored {
 public:
  template <class U>
  Mirrored(const PerReplica<U>&) = delete;  // may differ by rank: reduce it, or broadcast it

  const T& value() const& { return value_; }
  T value() && { return std::move(value_); }

 private:
  friend struct detail::MirroredAccess;
  explicit Mirrored(T value) : value_{std::move(value)} {}  // same_on_all proves that a value is the same

  T value_;
};

/// Rows of a larger dense tensor: `values[i]` belongs to row `indices[i]`. If an index occurs more than once, its rows
/// add up. Ranks may have different numbers of rows, including none. The sum of the replicas' slices is all of their
/// rows, concatenated in rank order.
struct IndexedSlices {
  Tensor values;      ///< [rows, …]
  Tensor indices;     ///< i64 [rows], in memory of the same device
  Shape dense_shape;  ///< [n, …], with the extents of `values` after the first
};

namespace detail {

/// The library's permission to call a value mirrored. The caller of `make` guarantees that every rank holds the same
/// value.
struct MirroredAccess {
  template <class T>
  static Mirrored<T> make(T value) {
    return Mirrored<T>{std::move(value)};
  }
};

template <class T>
inline constexpr bool is_per_replica = false;  ///< whether T is a PerReplica
template <class T>
inline constexpr bool is_per_replica<PerReplica<T>> = true;

template <class T>
inline constexpr bool is_mirrored = false;  ///< whether T is a Mirrored
template <class T>
inline constexpr bool is_mirrored<Mirrored<T>> = true;

}  // namespace detail
}  // namespace lockstep
