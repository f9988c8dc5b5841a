// What all reductions share: turning a list of tensors into a few flat pieces of memory, and back.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "base/element_type.hpp"
#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "reduce/cross_device_ops.hpp"
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

// Halves of a sum of `communicator`'s ranks, each with a slice, by messages.

/// Sums this rank's slice of `piece` over the ranks, in the fixed order. Needs room in `received`.
void sum_own_slice(Communicator& communicator, Scratch& received, const TensorView& piece, SliceBounds bounds,
                   int divisor = 1);

/// The same for every piece of a message.
void sum_own_slices(Communicator& communicator, Scratch& received, const Sliced& message);

/// Brings the slices of every piece together.
void gather_pieces(Communicator& communicator, const Sliced& message);

/// Tensors of one type as one piece of memory.
class Message {
 public:
  /// If the parts are not contiguous, enqueues copies of them to the memory that `take(dtype, count)` returns, which
  /// must outlive this object.
  template <class Take>
  Message(std::vector<TensorView> parts, Stream& stream, Take&& take) : parts_{std::move(parts)} {
    if (const auto whole = contiguous(parts_)) {
      flat_ = *whole;
    } else {
      is_packed_ = true;
      flat_ = take(parts_.front().dtype(), count_of(parts_));
      for_each_part([&](const TensorView& there, const TensorView& part) { copy(part, there, stream); });
    }
  }

  const TensorView& flat() const { return flat_; }

  /// Enqueues copies back to the parts, if they were copied.
  void unpack(Stream& stream) const {
    if (is_packed_) for_each_part([&](const TensorView& there, const TensorView& part) { copy(there, part, stream); });
  }

 private:
  /// The parts as one piece of memory, if they are contiguous.
  static std::optional<TensorView> contiguous(std::span<const TensorView> parts);
  static std::int64_t count_of(std::span<const TensorView> parts);

  template <class Body>
  void for_each_part(Body&& body) const {
    std::int64_t first = 0;
    for (const TensorView& part : parts_) {
      body(flat_.slice(first, part.count()), part);
      first += part.count();
    }
  }

  std::vector<TensorView> parts_;
  TensorView flat_;
  bool is_packed_ = false;
};

/// Makes messages of tensors as `packing` says. Tensors that are adjacent in memory are passed on in place, others as a
/// packed copy: one call per message. A message of which each rank needs its slices is summed as a whole.
class FlatOps : public CrossDeviceOps {
 public:
  /// Tensors are in memory of the device that `communicator` serves. It must outlive this object.
  FlatOps(Communicator& communicator, Packing packing) : communicator_{communicator}, packing_{packing} {}

  const Packing& packing() const override { return packing_; }
  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override;
  Work start(const TensorView& message) override {
    return Work::later([this, message] { reduce(ReduceOp::sum, message); });
  }
  Work start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    return Work::later([this, op, all = std::vector(tensors.begin(), tensors.end())] { all_reduce(op, all); });
  }
  std::vector<int> slice_owners() const override;
  Work start_scatter(const Sliced& message) override;
  void gather_slices(std::span<const Sliced> messages) override;
  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override;
  void broadcast(std::span<const TensorView> tensors, int root) override;
  void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) override;
  void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) override;
  void broadcast(std::span<IndexedSlices> slices, int root) override;
  void all_gather(std::span<Tensor> tensors) override;

 protected:
  Communicator& communicator() { return communicator_; }
  Stream& stream() { return communicator_.stream(); }
  /// What a sum over the ranks is divided by for `op`.
  int divisor(ReduceOp op) const { return op == ReduceOp::mean ? communicator_.size() : 1; }

  /// In place: on every rank, or on `root` only.
  virtual void reduce(ReduceOp op, const TensorView& flat) = 0;
  virtual void reduce_to(ReduceOp op, const TensorView& flat, int root) = 0;

  /// Calls `body(parts)` once per message, with the parts of `tensors` that travel in it.
  template <class Body>
  void for_each_message(std::span<const TensorView> tensors, Body&& body) const;

 private:
  template <class Body>
  void for_each_flat(std::span<const TensorView> tensors, Body&& body);

  Communicator& communicator_;
  Packing packing_;
  Scratch packed_;
};

template <class Body>
void FlatOps::for_each_message(std::span<const TensorView> tensors, Body&& body) const {
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
      body(std::move(parts));
    }
  }
}

}  // namespace lockstep::detail
