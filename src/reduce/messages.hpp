// From a list of tensors to a few flat pieces of memory, and back.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/element_type.hpp"
#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "reduce/message_plan.hpp"
#include "reduce/slice_map.hpp"

namespace lockstep::detail {

/// How much of a large tensor is sent at once: little enough to stay in the cache between the sum and its return,
/// enough to hide a message's latency, and far less than MPI can address.
constexpr std::int64_t bucket_bytes = 4 << 20;

/// The room that `bytes` take where the next tensor, of any type, begins aligned.
constexpr std::int64_t padded(std::size_t bytes) {
  constexpr std::size_t alignment = 16;  // suits every element type
  return static_cast<std::int64_t>((bytes + alignment - 1) / alignment * alignment);
}

/// The room that all of them take.
inline std::int64_t padded(std::span<const TensorView> tensors) {
  std::int64_t bytes = 0;
  for (const TensorView& tensor : tensors) bytes += padded(tensor.bytes());
  return bytes;
}

/// Memory that grows to the largest size asked for and stays: a training step allocates nothing.
class Scratch {
 public:
  /// Of unspecified content; valid until the next call.
  TensorView take(Communicator& communicator, DType dtype, std::int64_t count);

 private:
  Buffer buffer_;
};

/// Calls `body(piece, bounds)` for each piece of `message`, with the bounds of its slices.
template <class Body>
void for_each_piece(const Sliced& message, Body&& body) {
  for (std::size_t i = 0; i < message.slices->pieces(); ++i) {
    const SliceBounds bounds = message.slices->bounds(i);
    body(message.memory.slice(bounds.front(), bounds.back() - bounds.front()), from_zero(bounds));
  }
}

/// Tensors of one type as one piece of memory: as they lie if they are adjacent, else as a copy in `memory`, which must
/// outlive this object.
class Message {
 public:
  Message(std::vector<TensorView> parts, Communicator& communicator, Scratch& memory);

  const TensorView& flat() const { return flat_; }

  /// Enqueues copies back to the parts, if they were copied.
  void unpack() const;

 private:
  template <class Body>
  void for_each_part(Body&& body) const;

  std::vector<TensorView> parts_;
  Stream& stream_;
  TensorView flat_;
  bool is_packed_ = false;
};

/// Calls `body(parts)` once for each message that `packing` makes of `tensors`, with the parts that travel in it.
template <class Body>
void for_each_message(const Packing& packing, std::span<const TensorView> tensors, Body&& body) {
  std::vector<DType> seen;
  for (const TensorView& first : tensors) {
    const DType dtype = first.dtype();
    if (std::ranges::find(seen, dtype) != seen.end()) continue;
    seen.push_back(dtype);
    std::vector<TensorView> alike;
    std::vector<std::int64_t> counts;
    for (const TensorView& tensor : tensors) {
      if (tensor.dtype() != dtype) continue;
      alike.push_back(tensor);
      counts.push_back(tensor.count());
    }
    for (const auto& message : plan_messages(packing, counts, size_of(dtype))) {
      std::vector<TensorView> parts;
      for (const Run& run : message) parts.push_back(alike[run.tensor].slice(run.first, run.count));
      body(std::move(parts));
    }
  }
}

}  // namespace lockstep::detail
