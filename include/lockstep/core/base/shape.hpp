// Shapes of tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

/// One extent per dimension, outermost first. An empty shape is a scalar. It is used like a std::vector, but allocates
/// no memory, because every step of a training makes many shapes.
///
/// InvalidArgument from whatever would make more than `most_dimensions`.
class LOCKSTEP_API Shape {
 public:
  /// How many dimensions a shape can have.
  static constexpr std::size_t most_dimensions = 8;

  using value_type = std::int64_t;
  using iterator = std::int64_t*;
  using const_iterator = const std::int64_t*;

  constexpr Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape{extents.begin(), extents.end()} {}
  Shape(const std::vector<std::int64_t>& extents) : Shape{extents.begin(), extents.end()} {}
  template <std::input_iterator Extents>
  Shape(Extents begin, Extents end) {
    for (; begin != end; ++begin) push_back(*begin);
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  std::int64_t& operator[](std::size_t dimension) { return extents_[dimension]; }
  std::int64_t operator[](std::size_t dimension) const { return extents_[dimension]; }
  std::int64_t& front() { return extents_[0]; }
  std::int64_t front() const { return extents_[0]; }
  std::int64_t& back() { return extents_[size_ - 1]; }
  std::int64_t back() const { return extents_[size_ - 1]; }
  std::int64_t* data() { return extents_.data(); }
  const std::int64_t* data() const { return extents_.data(); }

  iterator begin() { return extents_.data(); }
  iterator end() { return begin() + size_; }
  const_iterator begin() const { return extents_.data(); }
  const_iterator end() const { return begin() + size_; }

  void push_back(std::int64_t extent) {
    if (size_ == most_dimensions) refuse_more();
    extents_[size_++] = extent;
  }

  void pop_back() { --size_; }

  /// Puts an extent before `place`, and returns its place.
  iterator insert(iterator place, std::int64_t extent) {
    push_back(extent);
    std::rotate(place, end() - 1, end());
    return place;
  }

  /// Takes out the extent at `place`. Returns the place of the next one.
  iterator erase(iterator place) {
    std::copy(place + 1, end(), place);
    --size_;
    return place;
  }

  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  [[noreturn]] static void refuse_more();

  std::array<std::int64_t, most_dimensions> extents_{};
  std::size_t size_ = 0;
};

/// "[512, 784]"; "[]" for a scalar.
LOCKSTEP_API std::string describe(const Shape& shape);

}  // namespace lockstep
