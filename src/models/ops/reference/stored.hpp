// How loops over f32 and f64 work on operands that are stored as bf16: these are widened a piece at a time, into memory
// that stays in the cache, and results are rounded once, from there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/tensor/computed.hpp"
#include "core/tensor/convert.hpp"

namespace lockstep::ops {

/// Elements to compute with: the stored ones themselves.
template <class T>
class Computed {
 public:
  const T* read(const T* from, std::int64_t /*count*/) { return from; }

  /// Where to write `count` results for `to`. They are there after `store`.
  T* write(T* to, std::int64_t /*count*/) { return to; }
  void store() {}
};

/// Or copies of them. One object is for one operand.
template <>
class Computed<BFloat16> {
 public:
  const float* read(const BFloat16* from, std::int64_t count) {
    float* const to = room(count);
    detail::widen(from, to, count);
    return to;
  }
  float* write(BFloat16* to, std::int64_t count) {
    to_ = to;
    count_ = count;
    return room(count);
  }
  void store() { detail::round(room_.data(), to_, count_); }

 private:
  float* room(std::int64_t count) {
    if (std::ssize(room_) < count) room_.resize(static_cast<std::size_t>(count));
    return room_.data();
  }

  std::vector<float> room_;
  BFloat16* to_ = nullptr;
  std::int64_t count_ = 0;
};

/// How many elements to take at a time: all, unless they are widened.
template <class T>
constexpr std::int64_t piece_of(std::int64_t count) {
  constexpr std::int64_t in_cache = 2048;
  return std::is_same_v<std::remove_const_t<T>, BFloat16> ? std::min(count, in_cache) : count;
}

/// Computes y from operands of the same number of elements: calls body(n, y, x...) for pieces of n elements, in order,
/// with pointers to detail::computed_t. y may be one of the operands.
template <class T, class Body, class... X>
void map_elements(std::int64_t count, T* y, Body&& body, const X*... x) {
  const std::int64_t piece = piece_of<T>(count);
  Computed<T> result;
  const auto in_pieces = [&](Computed<X>... operands) {
    for (std::int64_t first = 0; first < count; first += piece) {
      const std::int64_t n = std::min(piece, count - first);
      body(n, result.write(y + first, n), operands.read(x + first, n)...);
      result.store();
    }
  };
  in_pieces(Computed<X>{}...);
}

/// An f32 copy of a tensor of bf16.
inline Tensor widened(const TensorView& view) {
  Tensor copy = Tensor::uninitialised(DType::f32, view.shape());
  detail::convert(view, copy.view());
  return copy;
}

/// Calls body(y) with f32 memory for a result that is stored as bf16.
template <class Body>
void rounded(const TensorView& y, Body&& body) {
  const Tensor wide = Tensor::uninitialised(DType::f32, y.shape());
  body(wide.view());
  detail::convert(wide.view(), y);
}

}  // namespace lockstep::ops
