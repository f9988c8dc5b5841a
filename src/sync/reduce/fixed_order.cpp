#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/fixed_order_sum.hpp"

namespace lockstep {

void fixed_order_sum(const TensorView& pieces, int parts, const TensorView& sum, Stream& stream) {
  if (parts < 1 || pieces.count() != sum.count() * parts || pieces.dtype() != sum.dtype())
    throw InvalidArgument{fmt::format("{} is not {} pieces of {}", describe(pieces), parts, describe(sum))};
  detail::tree_sum({.first = pieces.slice(0, sum.count()), .stride = sum.count(), .count = parts}, {}, sum, stream);
}

FixedOrderAccumulator::FixedOrderAccumulator(DType dtype, std::int64_t count, Stream& stream)
    : dtype_{dtype}, count_{count}, stream_{&stream} {
  if (is_16_bit_float(dtype))
    throw InvalidArgument{
        fmt::format("parts of {} that come one after the other would be rounded at every sum; accumulate them in f32",
                    name_of(dtype))};
}

FixedOrderAccumulator::FixedOrderAccumulator(const TensorView& home, Stream& stream)
    : FixedOrderAccumulator{home.dtype(), home.count(), stream} {
  partials_.push_back({.memory = {}, .value = home.reshaped({count_})});
}

TensorView FixedOrderAccumulator::next() {
  if (used_ == partials_.size()) {
    const Tensor memory = Tensor::zeros(dtype_, {count_}, *stream_);
    partials_.push_back({.memory = memory, .value = memory.view()});
  }
  return partials_[used_].value;
}

void FixedOrderAccumulator::push() {
  next();
  partials_[used_++].parts = 1;
  // As a binary counter carries: two neighbours of equal size become one of twice the size, in order.
  while (used_ >= 2 && partials_[used_ - 2].parts == partials_[used_ - 1].parts) join_last_two();
}

void FixedOrderAccumulator::finish(const TensorView& sum) {
  if (used_ == 0) throw InvalidArgument{"a sum of no parts has no elements to give"};
  // If the number of parts is not a power of two, several aligned runs are left; the tree joins them from the right.
  while (used_ >= 2) join_last_two();
  const TensorView flat = sum.reshaped({count_});
  if (flat.data() != partials_[0].value.data()) copy(partials_[0].value, flat, *stream_);
  clear();
}

void FixedOrderAccumulator::clear() {
  for (Partial& partial : partials_) partial.parts = 0;
  used_ = 0;
}

void FixedOrderAccumulator::join_last_two() {
  Partial& left = partials_[used_ - 2];
  Partial& right = partials_[used_ - 1];
  detail::add(left.value, right.value, *stream_);
  left.parts += std::exchange(right.parts, 0);
  --used_;
}

}  // namespace lockstep
