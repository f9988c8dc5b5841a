// Which tensors travel as one message: from a list of them to a few flat pieces of memory, and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/sync/reduce/reduction_options.hpp>

#include "core/base/element_type.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "sync/reduce/slice_map.hpp"

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

/// Whether all tensors of a type travel as one message.
bool is_default(const Packing& packing);

/// Where each message that `packing` makes of tensors ends, in elements of all tensors one after the other. `counts`
/// are the tensors' numbers of elements, all of `element_bytes` each. Every element travels once, in order; no message
/// is empty. Pure, so all ranks make the same plan.
std::vector<std::int64_t> ends_of_messages(const Packing& packing, std::span<const std::int64_t> counts,
                                           std::size_t element_bytes);

/// Elements [first, first + count) of the tensors one after the other, which lie in the tensors before `tensors`.
struct Bucket {
  std::int64_t first;
  std::int64_t count;
  std::size_t tensors;

  bool operator==(const Bucket&) const = default;
};

/// The messages for tensors that lie one after the other in memory and are completed in about that order, so that a
/// message can leave while the next is being computed. A packing other than the default makes those of
/// `ends_of_messages`. The default makes messages of neighbouring whole tensors, of `enough_bytes` or more but for a
/// small first one, which leaves early, and the last.
std::vector<Bucket> plan_buckets(const Packing& packing, std::span<const std::int64_t> counts,
                                 std::size_t element_bytes, std::int64_t enough_bytes);

/// Small enough to leave early, and not too small for what a message costs.
constexpr std::int64_t early_bytes = 256 << 10;

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

/// Calls `body(piece)` for pieces of `flat`, which follow each other and are of up to `bytes` each.
template <class Body>
void for_each_bucket(const TensorView& flat, std::int64_t bytes, Body&& body) {
  const std::int64_t longest = bytes / static_cast<std::int64_t>(size_of(flat.dtype()));
  for (std::int64_t first = 0; first < flat.count(); first += longest)
    body(flat.slice(first, std::min(longest, flat.count() - first)));
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

/// The parts of `tensors`, of any types, that travel in each message that `packing` makes of them.
std::vector<std::vector<TensorView>> messages_of(const Packing& packing, std::span<const TensorView> tensors);

}  // namespace lockstep::detail
