#include "reduce/arithmetic.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "reduce/cuda/arithmetic.hpp"
#include "reduce/dispatch.hpp"

namespace lockstep::detail {
namespace {

// Small enough that a block of every level of the tree stays in the first-level cache.
constexpr std::int64_t block = 512;

template <class T>
void add_elements(T* __restrict sum, const T* __restrict x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<T>(sum[i] + x[i]);
}

template <class T>
void tree(const T* pieces, std::int64_t stride, int first, int last, std::int64_t count, T* sum) {
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
  std::array<T, block> right;
  tree(pieces, stride, middle, last, count, right.data());
  add_elements(sum, right.data(), count);
}

bool on_gpu(const Stream& stream) {
  return stream.kind() == DeviceKind::cuda;
}

}  // namespace

void tree_sum(const Pieces& pieces, const TensorView& sum, Stream& stream) {
  if (on_gpu(stream)) return cuda::tree_sum(pieces, sum, stream);
  with_element_type(sum.dtype(), [&]<class T>() {
    const T* const from = pieces.first.elements<T>().data();
    T* const to = sum.elements<T>().data();
    for (std::int64_t first = 0; first < sum.count(); first += block)
      tree(from + first, pieces.stride, 0, pieces.count, std::min(block, sum.count() - first), to + first);
  });
}

void add(const TensorView& sum, const TensorView& x, Stream& stream) {
  if (on_gpu(stream)) return cuda::add(sum, x, stream);
  with_element_type(sum.dtype(),
                    [&]<class T>() { add_elements(sum.elements<T>().data(), x.elements<T>().data(), sum.count()); });
}

void divide(const TensorView& view, int divisor, Stream& stream) {
  if (on_gpu(stream)) return cuda::divide(view, divisor, stream);
  with_element_type(view.dtype(), [&]<class T>() {
    for (T& x : view.elements<T>()) x = static_cast<T>(x / static_cast<T>(divisor));
  });
}

}  // namespace lockstep::detail
