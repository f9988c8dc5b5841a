#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/reduce/fixed_order.hpp>

#include "reduce/dispatch.hpp"

namespace lockstep {
namespace {

// Small enough that a block of every level of the tree stays in the first-level cache.
constexpr std::int64_t block = 512;

template <class T>
void add(T* __restrict sum, const T* __restrict x, std::int64_t count) {
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
    add(sum, pieces + middle * stride, count);
    return;
  }
  std::array<T, block> right;
  tree(pieces, stride, middle, last, count, right.data());
  add(sum, right.data(), count);
}

}  // namespace

void fixed_order_sum(const TensorView& pieces, int parts, const TensorView& sum) {
  if (parts < 1 || pieces.count() != sum.count() * parts || pieces.dtype() != sum.dtype())
    throw InvalidArgument{fmt::format("{} is not {} pieces of {}", describe(pieces), parts, describe(sum))};
  with_element_type(sum.dtype(), [&]<class T>() {
    const T* const from = pieces.elements<T>().data();
    T* const to = sum.elements<T>().data();
    const std::int64_t stride = sum.count();
    for (std::int64_t first = 0; first < stride; first += block)
      tree(from + first, stride, 0, parts, std::min(block, stride - first), to + first);
  });
}

FixedOrderAccumulator::FixedOrderAccumulator(DType dtype, std::int64_t count) : dtype_{dtype}, count_{count} {}

TensorView FixedOrderAccumulator::next() {
  if (used_ == partials_.size()) partials_.push_back({Tensor::zeros(dtype_, {count_}), 0});
  return partials_[used_].value.view();
}

void FixedOrderAccumulator::push() {
  next();
  partials_[used_++].parts = 1;
  // As a binary counter carries: two neighbours of one size become one of twice the size, left onto right kept in
  // order.
  while (used_ >= 2 && partials_[used_ - 2].parts == partials_[used_ - 1].parts) {
    Partial& left = partials_[used_ - 2];
    Partial& right = partials_[used_ - 1];
    with_element_type(dtype_, [&]<class T>() {
      add(left.value.view().elements<T>().data(), right.value.view().elements<T>().data(), count_);
    });
    left.parts += std::exchange(right.parts, 0);
    --used_;
  }
}

void FixedOrderAccumulator::finish(const TensorView& sum) {
  if (used_ == 0) throw InvalidArgument{"a sum of no parts has no elements to give"};
  // What is left are the aligned runs of a number of parts that is no power of two: the tree joins them from the right.
  while (used_ >= 2) {
    Partial& left = partials_[used_ - 2];
    Partial& right = partials_[used_ - 1];
    with_element_type(dtype_, [&]<class T>() {
      add(left.value.view().elements<T>().data(), right.value.view().elements<T>().data(), count_);
    });
    right.parts = 0;
    --used_;
  }
  copy(partials_[0].value.view(), sum.reshaped({count_}));
  partials_[0].parts = 0;
  used_ = 0;
}

}  // namespace lockstep
