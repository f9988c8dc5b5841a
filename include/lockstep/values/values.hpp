// Values whose locality is their type. A process holds its own component only.
#pragma once

#include <utility>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// A value that may differ on every rank. There is no way to another rank's component but a collective.
template <class T>
class PerReplica {
 public:
  explicit PerReplica(T local) : local_{std::move(local)} {}

  /// This rank's component.
  const T& local() const { return local_; }

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

  const T& value() const { return value_; }

 private:
  friend struct detail::MirroredAccess;
  explicit Mirrored(T value) : value_{std::move(value)} {}  // same_on_all proves that a value is the same

  T value_;
};

/// Rows of a larger dense tensor: `values[i]` stands at row `indices[i]`. An index may occur more than once, and its
/// rows then add up. Each rank may have another number of rows, also none; what the replicas' slices add up to is all
/// of their rows, one rank's behind the other's.
struct IndexedSlices {
  Tensor values;      ///< [rows, …]
  Tensor indices;     ///< i64 [rows], in memory of the same device
  Shape dense_shape;  ///< [n, …] with the same extents behind the first
};

namespace detail {

/// The library's licence to call a value mirrored: whoever calls `make` has made it so.
struct MirroredAccess {
  template <class T>
  static Mirrored<T> make(T value) {
    return Mirrored<T>{std::move(value)};
  }
};

}  // namespace detail
}  // namespace lockstep
