#include "reduce/flat_ops.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "reduce/message_plan.hpp"

namespace lockstep::detail {
namespace {

/// The parts as one piece of memory, if they are contiguous.
std::optional<TensorView> contiguous(std::span<const TensorView> parts) {
  std::int64_t count = 0;
  const std::byte* end = parts.front().data();
  for (const TensorView& part : parts) {
    if (part.data() != end) return std::nullopt;
    end += part.bytes();
    count += part.count();
  }
  return TensorView{parts.front().data(), {count}, parts.front().dtype(), parts.front().device()};
}

template <class Body>
void for_each_part(const TensorView& flat, std::span<const TensorView> parts, Body&& body) {
  std::int64_t first = 0;
  for (const TensorView& part : parts) {
    body(flat.slice(first, part.count()), part);
    first += part.count();
  }
}

}  // namespace

TensorView Scratch::take(Communicator& communicator, DType dtype, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * size_of(dtype);
  if (buffer_.bytes() < bytes) buffer_ = communicator.allocate(bytes);
  return {buffer_.data(), {count}, dtype, communicator.stream().kind()};
}

void FlatOps::all_reduce(ReduceOp op, std::span<const TensorView> tensors) {
  for_each_message(tensors, [&](const TensorView& flat) { reduce(op, flat); });
}

void FlatOps::reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) {
  for_each_message(tensors, [&](const TensorView& flat) { reduce_to(op, flat, root); });
}

void FlatOps::broadcast(std::span<const TensorView> tensors, int root) {
  for_each_message(tensors, [&](const TensorView& flat) { communicator_.broadcast(flat, root).wait(); });
}

/// Calls `body` once per message, with its tensors as one flat view, and copies the result back if needed.
template <class Body>
void FlatOps::for_each_message(std::span<const TensorView> tensors, Body&& body) {
  std::vector<DType> seen;
  for (const TensorView& first : tensors) {
    const DType dtype = first.dtype();
    if (std::find(seen.begin(), seen.end(), dtype) != seen.end()) continue;
    seen.push_back(dtype);
    std::vector<TensorView> alike;
    std::vector<std::int64_t> counts;
    for (const TensorView& tensor : tensors) {
      if (tensor.dtype() != dtype) continue;
      alike.push_back(tensor);
      counts.push_back(tensor.count());
    }
    for (const auto& message : plan_messages(packing_, counts, size_of(dtype))) {
      std::vector<TensorView> parts;
      for (const Run& run : message) parts.push_back(alike[run.tensor].slice(run.first, run.count));
      if (const auto flat = contiguous(parts)) {
        body(*flat);
      } else {
        packed(parts, body);
      }
    }
  }
}

template <class Body>
void FlatOps::packed(std::span<const TensorView> parts, Body&& body) {
  std::int64_t count = 0;
  for (const TensorView& part : parts) count += part.count();
  const TensorView flat = packed_.take(communicator_, parts.front().dtype(), count);
  for_each_part(flat, parts, [&](const TensorView& there, const TensorView& part) { copy(part, there, stream()); });
  body(flat);
  for_each_part(flat, parts, [&](const TensorView& there, const TensorView& part) { copy(there, part, stream()); });
}

}  // namespace lockstep::detail
