#include "reduce/arithmetic.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "reduce/cuda/arithmetic.hpp"
#include "reduce/dispatch.hpp"

namespace lockstep::detail {
namespace {

// Small enough that a block of every level of the tree stays in the L1 cache.
constexpr std::int64_t block = 512;

template <class T>
void add_elements(sum_t<T>* __restrict sum, const T* __restrict x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = sum_of<sum_t<T>>(sum[i], x[i]);
}

template <class T>
void divide_elements(T* values, int divisor, std::int64_t count) {
  if (divisor == 1) return;
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(static_cast<sum_t<T>>(values[i]) / static_cast<sum_t<T>>(divisor));
}

template <class T>
void tree(const T* pieces, std::int64_t stride, int first, int last, std::int64_t count, sum_t<T>* sum) {
  if (last - first == 1) {
    std::copy_n(pieces + first * stride, count, sum);
    return;
  }
  const int middle = first + static_cast<int>(std::bit_floor(static_cast<unsigned>(last - first - 1)));
  tree(pieces, stride, first, middle, count, sum);
  if (last - middle == 1) {
    add_elements(sum, pieces + middle * stride, count);
    return;
  }
  std::array<sum_t<T>, block> right;
  tree(pieces, stride, middle, last, count, right.data());
  add_elements(sum, right.data(), count);
}

/// The tree for at most one block of elements.
template <class T>
void tree_sum(const T* pieces, std::int64_t stride, int parts, int divisor, std::int64_t count, T* sum) {
  if constexpr (std::is_same_v<T, sum_t<T>>) {
    tree(pieces, stride, 0, parts, count, sum);
    divide_elements(sum, divisor, count);
  } else {
    std::array<sum_t<T>, block> unrounded;
    tree(pieces, stride, 0, parts, count, unrounded.data());
    divide_elements(unrounded.data(), divisor, count);
    std::transform(unrounded.begin(), unrounded.begin() + count, sum, [](sum_t<T> x) { return static_cast<T>(x); });
  }
}

bool on_gpu(const Stream& stream) {
  return stream.kind() == DeviceKind::cuda;
}

}  // namespace

void tree_sum(const Pieces& pieces, int divisor, const TensorView& sum, Stream& stream) {
  if (on_gpu(stream)) return cuda::tree_sum(pieces, divisor, sum, stream);
  with_element_type(sum.dtype(), [&]<class T>() {
    const T* const from = pieces.first.elements<T>().data();
    T* const to = sum.elements<T>().data();
    for (std::int64_t first = 0; first < sum.count(); first += block)
      tree_sum(from + first, pieces.stride, pieces.count, divisor, std::min(block, sum.count() - first), to + first);
  });
}

void add(const TensorView& sum, const TensorView& x, Stream& stream) {
  if (on_gpu(stream)) return cuda::add(sum, x, stream);
  with_element_type(sum.dtype(), [&]<class T>() {
    const auto sums = sum.elements<T>();
    std::transform(sums.begin(), sums.end(), x.elements<T>().begin(), sums.begin(),
                   [](T a, T b) { return static_cast<T>(sum_of<sum_t<T>>(a, b)); });
  });
}

void divide(const TensorView& view, int divisor, Stream& stream) {
  if (divisor == 1) return;
  if (on_gpu(stream)) return cuda::divide(view, divisor, stream);
  with_element_type(view.dtype(),
                    [&]<class T>() { divide_elements(view.elements<T>().data(), divisor, view.count()); });
}

}  // namespace lockstep::detail
