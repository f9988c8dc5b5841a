#include "reduce/flat_ops.hpp"

#include <numeric>

#include "base/element_type.hpp"
#include "comm/communicator.hpp"
#include "reduce/arithmetic.hpp"
#include "reduce/slice_map.hpp"

namespace lockstep::detail {
TensorView Scratch::take(Communicator& communicator, DType dtype, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * size_of(dtype);
  if (buffer_.bytes() < bytes) {
    buffer_ = communicator.allocate(bytes);
    // The gaps between tensors are sent too. Later they hold what an earlier message left there, but are never
    // uninitialised.
    communicator.stream().fill_zero(buffer_.data(), buffer_.bytes());
  }
  return {buffer_.data(), {count}, dtype, communicator.stream().kind()};
}

void sum_own_slice(Communicator& communicator, Scratch& received, const TensorView& piece, SliceBounds bounds,
                   int divisor) {
  const int ranks = communicator.size();
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const TensorView mine = piece.slice(bounds[rank], bounds[rank + 1] - bounds[rank]);
  const TensorView parts = received.take(communicator, piece.dtype(), mine.count() * ranks);
  communicator.all_to_all(piece, bounds, parts).wait();
  if (mine.count() > 0)
    tree_sum({.first = parts.slice(0, mine.count()), .stride = mine.count(), .count = ranks}, divisor, mine,
             communicator.stream());
}

void sum_own_slices(Communicator& communicator, Scratch& received, const Sliced& message) {
  for_each_piece(message, [&](const TensorView& piece, SliceBounds bounds) {
    sum_own_slice(communicator, received, piece, bounds);
  });
}

void gather_pieces(Communicator& communicator, const Sliced& message) {
  for_each_piece(message,
                 [&](const TensorView& piece, SliceBounds bounds) { communicator.all_gather(piece, bounds).wait(); });
}

std::optional<TensorView> Message::contiguous(std::span<const TensorView> parts) {
  const std::byte* end = parts.front().data();
  for (const TensorView& part : parts) {
    if (part.data() != end) return std::nullopt;
    end += part.bytes();
  }
  return TensorView{parts.front().data(), {count_of(parts)}, parts.front().dtype(), parts.front().device()};
}

std::int64_t Message::count_of(std::span<const TensorView> parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const TensorView& part) { return sum + part.count(); });
}

void FlatOps::all_reduce(ReduceOp op, std::span<const TensorView> tensors) {
  for_each_flat(tensors, [&](const TensorView& flat) { reduce(op, flat); });
}

std::vector<int> FlatOps::slice_owners() const {
  return owners_in_order(communicator_.size());
}

Work FlatOps::start_scatter(const Sliced& message) {
  return start(message.memory);
}

void FlatOps::gather_slices(std::span<const Sliced> messages) {
  for (const Sliced& message : messages) gather_pieces(communicator_, message);
}

void FlatOps::reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) {
  for_each_flat(tensors, [&](const TensorView& flat) { reduce_to(op, flat, root); });
}

void FlatOps::broadcast(std::span<const TensorView> tensors, int root) {
  for_each_flat(tensors, [&](const TensorView& flat) { communicator_.broadcast(flat, root).wait(); });
}

/// Calls `body` once per message, with its tensors as one flat view, and copies the result back if needed.
template <class Body>
void FlatOps::for_each_flat(std::span<const TensorView> tensors, Body&& body) {
  for_each_message(tensors, [&](std::vector<TensorView> parts) {
    const Message message{std::move(parts), stream(),
                          [&](DType dtype, std::int64_t count) { return packed_.take(communicator_, dtype, count); }};
    body(message.flat());
    message.unpack(stream());
  });
}

}  // namespace lockstep::detail
