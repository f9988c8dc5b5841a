#include "sync/reduce/subtrees.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/device/stream.hpp>

#include "core/base/element_type.hpp"
#include "core/device/device.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {
namespace {

DType unrounded(DType dtype) {
  if (is_16_bit_float(dtype))
    throw InvalidArgument{fmt::format(
        "parts of several subtrees of {} would be rounded before their sum; expected f32 or f64", name_of(dtype))};
  return dtype;
}

}  // namespace

Subtrees::Subtrees(const Shares& shares, int rank) : shares_{shares}, rank_{rank}, additions_{shares.additions()} {}

Subtrees::Subtrees(Reductions& reductions, const Shares& shares, int rank, const TensorView& sum)
    : Subtrees{shares, rank} {
  add(allocate(reductions, sum));
}

auto Subtrees::allocate(Reductions& reductions, const TensorView& sum) const -> std::shared_ptr<const Memory> {
  (void)unrounded(sum.dtype());
  const auto memory = std::make_shared<Memory>(Memory{sum, {}});
  for (int other = 1; other < shares_.most_of_rank(); ++other) {
    Buffer shared = reductions.allocate_shared(sum.bytes()).memory;
    memory->others.push_back(shared.data() ? std::move(shared) : inside(Stream::host()).allocate(sum.bytes()));
  }
  return memory;
}

bool Subtrees::fits(const Memory& memory, const TensorView& sum) const {
  return memory.sum.data() == sum.data() && memory.sum.bytes() == sum.bytes() &&
         std::ssize(memory.others) + 1 >= shares_.most_of_rank();
}

std::vector<TensorView> Subtrees::others_of(const TensorView& message) const {
  const auto found = std::ranges::find_if(memory_, [&](const auto& each) {
    return each->sum.data() <= message.data() &&
           message.data() + message.bytes() <= each->sum.data() + each->sum.bytes();
  });
  if (found == memory_.end())
    throw InvalidArgument{fmt::format("{} is not in the memory of the sum", describe(message))};
  const std::ptrdiff_t first = message.data() - (*found)->sum.data();
  std::vector<TensorView> parts;
  for (int other = 1; other < shares_.most_of_rank(); ++other)
    parts.push_back({static_cast<std::byte*>((*found)->others[static_cast<std::size_t>(other) - 1].data()) + first,
                     message.shape(), message.dtype(), message.device()});
  return parts;
}

std::vector<TensorView> Subtrees::parts_of(const TensorView& message) const {
  std::vector<TensorView> parts = others_of(message);
  parts.resize(shares_.subtrees_of(rank_).size() - 1, message);
  parts.push_back(message);
  return parts;
}

PlacedSum::PlacedSum(const Shares& shares, int rank, DType dtype, std::int64_t count)
    : dtype_{unrounded(dtype)},
      integers_{Tensor::zeros(size_of(dtype) == 8 ? DType::i64 : DType::i32, {std::ssize(shares.subtrees()) * count})},
      count_{count},
      first_{shares.numbers()[static_cast<std::size_t>(rank)]},
      subtrees_{static_cast<int>(shares.subtrees().size())},
      additions_{shares.additions()} {}

void PlacedSum::make(const Subtrees& subtrees, std::span<const TensorView> parts, const TensorView& sum,
                     const std::function<void(const TensorView& integers)>& sum_up) {
  const PlacedSum placed{subtrees.shares(), subtrees.rank(), sum.dtype(), sum.count()};
  for (std::size_t part = 0; part < parts.size(); ++part) copy(parts[part], placed.of_own(part), Stream::host());
  sum_up(placed.integers().view());
  placed.finish(sum);
}

TensorView PlacedSum::numbers_in(const Tensor& integers, std::int64_t place) const {
  return {integers.view().slice(place * count_, count_).data(), {count_}, dtype_};
}

TensorView PlacedSum::of_own(std::size_t number) const {
  return numbers_in(integers_, first_ + static_cast<std::int64_t>(number));
}

void PlacedSum::finish(const Tensor& integers, const TensorView& sum) const {
  detail::tree_sum({.first = numbers_in(integers, 0), .stride = count_, .count = subtrees_}, {.additions = additions_},
                   sum, Stream::host());
}

}  // namespace lockstep
