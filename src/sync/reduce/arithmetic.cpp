#include "sync/reduce/arithmetic.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "core/base/wide_loop.hpp"
#include "core/device/gpu_backend.hpp"
#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/exact_block.hpp"

namespace lockstep::detail {
namespace {

// Small enough that a block of every level of the tree stays in the L1 cache.
constexpr std::int64_t block = 512;
static_assert(block <= exact_block);

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
    wide_loop([&] { add_elements(sum, pieces + middle * stride, count); });
    return;
  }
  std::array<sum_t<T>, block> right;
  tree(pieces, stride, middle, last, count, right.data());
  wide_loop([&] { add_elements(sum, right.data(), count); });
}

/// The subtree of `additions` that begins with the next piece and has no left neighbour yet. Returns how many additions
/// still follow its last piece: of this sum to what is left of it, and so on. Both arguments move behind that piece.
template <class T>
int given_tree(const T*& piece, std::int64_t stride, std::span<const std::uint8_t>& additions, std::int64_t count,
               sum_t<T>* sum) {
  std::copy_n(piece, count, sum);
  piece += stride;
  int left = additions.front();
  additions = additions.subspan(1);
  std::array<sum_t<T>, block> right;
  while (left == 0 && !additions.empty()) {
    left = given_tree(piece, stride, additions, count, right.data()) - 1;
    wide_loop([&] { add_elements(sum, right.data(), count); });
  }
  return left;
}

/// The sum of at most one block of elements, not divided yet.
template <class T>
void tree(const T* pieces, std::int64_t stride, int parts, const SumRule& rule, std::int64_t count, sum_t<T>* sum) {
  std::span<const std::uint8_t> additions = rule.additions;
  if (additions.empty()) return tree(pieces, stride, 0, parts, count, sum);
  (void)given_tree(pieces, stride, additions, count, sum);
}

Arithmetic arithmetic_for(const SumRule& rule) {
  return rule.is_exact ? arithmetic_now() : Arithmetic::as_ieee_says;
}

/// The sum of at most one block of elements.
template <class T>
void tree_sum_of_block(const T* pieces, std::int64_t stride, int parts, const SumRule& rule, Arithmetic arithmetic,
                       std::int64_t count, T* sum) {
  if constexpr (std::is_floating_point_v<T>)
    if (rule.is_exact) return exact_sum_of_block(pieces, stride, parts, count, arithmetic, sum);
  if constexpr (std::is_same_v<T, sum_t<T>>) {
    tree(pieces, stride, parts, rule, count, sum);
    divide_elements(sum, rule.divisor, count);
  } else {
    std::array<sum_t<T>, block> unrounded;
    tree(pieces, stride, parts, rule, count, unrounded.data());
    divide_elements(unrounded.data(), rule.divisor, count);
    std::transform(unrounded.begin(), unrounded.begin() + count, sum, [](sum_t<T> x) { return static_cast<T>(x); });
  }
}

template <class T>
void tree_sum(const T* pieces, std::int64_t stride, int parts, const SumRule& rule, std::int64_t count, T* sum) {
  const Arithmetic arithmetic = arithmetic_for(rule);
  for (std::int64_t begin = 0; begin < count; begin += block)
    tree_sum_of_block(pieces + begin, stride, parts, rule, arithmetic, std::min(block, count - begin), sum + begin);
}

// Processors look ahead by themselves, but not beyond a page, and what another core has written takes long to come.
constexpr std::int64_t ahead_bytes = 6 << 10;

/// Has elements [first, first + length) of `piece` fetched, to be overwritten. None beyond `count`.
template <class T>
void fetch(T* piece, std::int64_t first, std::int64_t length, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (const std::int64_t last = std::min(first + length, count); first < last; first += line)
    __builtin_prefetch(piece + first, 1);
}

/// Two pieces need no memory besides, and this is what a node of two ranks does all day.
template <class T>
void add_both(T* __restrict a, T* __restrict b, std::int64_t count) {
  constexpr std::int64_t ahead = ahead_bytes / sizeof(T);
  for (std::int64_t begin = 0; begin < count; begin += block) {
    fetch(a, begin + ahead, block, count);
    fetch(b, begin + ahead, block, count);
    const std::int64_t end = std::min(begin + block, count);
    for (std::int64_t i = begin; i < end; ++i) a[i] = b[i] = sum_of(a[i], b[i]);
  }
}

template <class T>
void tree_sum_in_place(T* pieces, std::int64_t stride, int parts, const SumRule& rule, std::int64_t count, int first,
                       int last) {
  if constexpr (std::is_same_v<T, sum_t<T>>)
    if (parts == 2 && !rule.is_exact && rule.divisor == 1 && rule.additions.empty() && last - first == 2)
      return wide_loop([&] { add_both(pieces, pieces + stride, count); });
  std::array<T, block> sum;
  const Arithmetic arithmetic = arithmetic_for(rule);
  for (std::int64_t begin = 0; begin < count; begin += block) {
    for (int piece = 0; piece < parts; ++piece)
      fetch(pieces + piece * stride, begin + ahead_bytes / static_cast<std::int64_t>(sizeof(T)), block, count);
    const std::int64_t length = std::min(block, count - begin);
    tree_sum_of_block(pieces + begin, stride, parts, rule, arithmetic, length, sum.data());
    for (int piece = first; piece < last; ++piece) std::copy_n(sum.data(), length, pieces + begin + piece * stride);
  }
}

/// Calls `body(first, stride in elements)`.
template <class Body>
void with_elements(const HostPieces& pieces, DType dtype, Body&& body) {
  with_element_type(dtype, [&]<class T>() {
    body(reinterpret_cast<T*>(pieces.first), pieces.stride / static_cast<std::int64_t>(sizeof(T)));
  });
}

bool on_gpu(const Stream& stream) {
  return stream.kind() == DeviceKind::cuda;
}

}  // namespace

void tree_sum(const Pieces& pieces, const SumRule& rule, const TensorView& sum, Stream& stream) {
  if (on_gpu(stream)) return gpu_backend().tree_sum(pieces, rule, sum, stream);
  with_element_type(sum.dtype(), [&]<class T>() {
    tree_sum(pieces.first.elements<T>().data(), pieces.stride, pieces.count, rule, sum.count(),
             sum.elements<T>().data());
  });
}

void tree_sum(const HostPieces& pieces, DType dtype, std::int64_t elements, const SumRule& rule, std::byte* sum) {
  with_elements(pieces, dtype, [&]<class T>(const T* first, std::int64_t stride) {
    tree_sum(first, stride, pieces.count, rule, elements, reinterpret_cast<T*>(sum));
  });
}

void tree_sum_in_place(const HostPieces& pieces, DType dtype, std::int64_t elements, const SumRule& rule, int first,
                       int last) {
  with_elements(pieces, dtype, [&]<class T>(T* from, std::int64_t stride) {
    tree_sum_in_place(from, stride, pieces.count, rule, elements, first, last);
  });
}

void add(const TensorView& sum, const TensorView& x, Stream& stream) {
  if (on_gpu(stream)) return gpu_backend().add(sum, x, stream);
  with_element_type(sum.dtype(), [&]<class T>() {
    const auto sums = sum.elements<T>();
    std::transform(sums.begin(), sums.end(), x.elements<T>().begin(), sums.begin(),
                   [](T a, T b) { return static_cast<T>(sum_of<sum_t<T>>(a, b)); });
  });
}

void divide(const TensorView& view, int divisor, Stream& stream) {
  if (divisor == 1) return;
  if (on_gpu(stream)) return gpu_backend().divide(view, divisor, stream);
  with_element_type(view.dtype(),
                    [&]<class T>() { divide_elements(view.elements<T>().data(), divisor, view.count()); });
}

}  // namespace lockstep::detail
