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

/// HostPieces of T, from the same element of each on.
template <class T>
struct Places : HostPieces {
  T* operator[](int piece) const {
    return at(offsets.empty() ? piece * stride : offsets[static_cast<std::size_t>(piece)]);
  }
  /// In bytes behind the first.
  T* at(std::int64_t offset) const { return reinterpret_cast<T*>(first + offset); }
  Places from(std::int64_t element) const {
    Places rest = *this;
    rest.first += element * static_cast<std::int64_t>(sizeof(T));
    return rest;
  }
};

template <class T>
void tree(const Places<T>& pieces, int first, int last, std::int64_t count, sum_t<T>* sum) {
  if (last - first == 1) {
    std::copy_n(pieces[first], count, sum);
    return;
  }
  const int middle = first + static_cast<int>(std::bit_floor(static_cast<unsigned>(last - first - 1)));
  tree(pieces, first, middle, count, sum);
  if (last - middle == 1) {
    wide_loop([&] { add_elements(sum, pieces[middle], count); });
    return;
  }
  std::array<sum_t<T>, block> right;
  tree(pieces, middle, last, count, right.data());
  wide_loop([&] { add_elements(sum, right.data(), count); });
}

/// The subtree of `additions` that begins with the next piece and has no left neighbour yet. Returns how many additions
/// still follow its last piece: of this sum to what is left of it, and so on. Moves `piece` behind that one.
template <class T>
int given_tree(const Places<T>& pieces, int& piece, std::span<const std::uint8_t> additions, std::int64_t count,
               sum_t<T>* sum) {
  std::copy_n(pieces[piece], count, sum);
  int left = additions[static_cast<std::size_t>(piece++)];
  std::array<sum_t<T>, block> right;
  while (left == 0 && piece < pieces.count) {
    left = given_tree(pieces, piece, additions, count, right.data()) - 1;
    wide_loop([&] { add_elements(sum, right.data(), count); });
  }
  return left;
}

/// The sum of at most one block of elements, not divided yet.
template <class T>
void tree(const Places<T>& pieces, const SumRule& rule, std::int64_t count, sum_t<T>* sum) {
  if (rule.additions.empty()) return tree(pieces, 0, pieces.count, count, sum);
  int first = 0;
  (void)given_tree(pieces, first, rule.additions, count, sum);
}

Arithmetic arithmetic_for(const SumRule& rule) {
  return rule.is_exact ? arithmetic_now() : Arithmetic::as_ieee_says;
}

/// The sum of at most one block of elements.
template <class T>
void tree_sum_of_block(const Places<T>& pieces, const SumRule& rule, Arithmetic arithmetic, std::int64_t count,
                       T* sum) {
  if constexpr (std::is_floating_point_v<T>)
    if (rule.is_exact)
      return exact_sum_of_block<T>(pieces[0], pieces.stride / static_cast<std::int64_t>(sizeof(T)), pieces.count, count,
                                   arithmetic, sum);
  if constexpr (std::is_same_v<T, sum_t<T>>) {
    tree(pieces, rule, count, sum);
    divide_elements(sum, rule.divisor, count);
  } else {
    std::array<sum_t<T>, block> unrounded;
    tree(pieces, rule, count, unrounded.data());
    divide_elements(unrounded.data(), rule.divisor, count);
    std::transform(unrounded.begin(), unrounded.begin() + count, sum, [](sum_t<T> x) { return static_cast<T>(x); });
  }
}

template <class T>
void tree_sum(const Places<T>& pieces, const SumRule& rule, std::int64_t count, T* sum) {
  const Arithmetic arithmetic = arithmetic_for(rule);
  for (std::int64_t begin = 0; begin < count; begin += block)
    tree_sum_of_block(pieces.from(begin), rule, arithmetic, std::min(block, count - begin), sum + begin);
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
void tree_sum_in_place(const Places<T>& pieces, const SumRule& rule, std::int64_t count, int first, int last) {
  if constexpr (std::is_same_v<T, sum_t<T>>)
    if (pieces.count == 2 && !rule.is_exact && rule.divisor == 1 && rule.additions.empty() && last - first == 2)
      return wide_loop([&] { add_both(pieces[0], pieces[1], count); });
  std::array<T, block> sum;
  const Arithmetic arithmetic = arithmetic_for(rule);
  for (std::int64_t begin = 0; begin < count; begin += block) {
    for (int piece = 0; piece < pieces.count; ++piece)
      fetch(pieces[piece], begin + ahead_bytes / static_cast<std::int64_t>(sizeof(T)), block, count);
    const std::int64_t length = std::min(block, count - begin);
    tree_sum_of_block(pieces.from(begin), rule, arithmetic, length, sum.data());
    for (int piece = first; piece < last; ++piece)
      std::copy_n(sum.data(), length, pieces.at(piece * pieces.stride) + begin);
  }
}

bool on_gpu(const Stream& stream) {
  return stream.kind() == DeviceKind::cuda;
}

}  // namespace

void tree_sum(const Pieces& pieces, const SumRule& rule, const TensorView& sum, Stream& stream) {
  if (on_gpu(stream)) return gpu_backend().tree_sum(pieces, rule, sum, stream);
  with_element_type(sum.dtype(), [&]<class T>() {
    auto* const first = reinterpret_cast<std::byte*>(pieces.first.elements<T>().data());
    const HostPieces on_host{first, pieces.stride * static_cast<std::int64_t>(sizeof(T)), pieces.count};
    tree_sum(Places<T>{on_host}, rule, sum.count(), sum.elements<T>().data());
  });
}

void tree_sum(const HostPieces& pieces, DType dtype, std::int64_t elements, const SumRule& rule, std::byte* sum) {
  with_element_type(dtype, [&]<class T>() { tree_sum(Places<T>{pieces}, rule, elements, reinterpret_cast<T*>(sum)); });
}

void tree_sum_in_place(const HostPieces& pieces, DType dtype, std::int64_t elements, const SumRule& rule, int first,
                       int last) {
  with_element_type(dtype, [&]<class T>() { tree_sum_in_place(Places<T>{pieces}, rule, elements, first, last); });
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
