// What all reductions share: turning a list of tensors into a few flat pieces of memory, and back.
#pragma once

#include <lockstep/reduce/cross_device_ops.hpp>

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
  /// Uninitialised; valid until the next call.
  TensorView take(Communicator& communicator, DType dtype, std::int64_t count);

 private:
  Buffer buffer_;
};

/// Makes messages of tensors as `packing` says. Tensors that are adjacent in memory are passed on in place, others as a
/// packed copy: one call per message.
class FlatOps : public CrossDeviceOps {
 public:
  /// Tensors are in memory of the device that `communicator` serves. It must outlive this object.
  FlatOps(Communicator& communicator, Packing packing) : communicator_{communicator}, packing_{packing} {}

  const Packing& packing() const override { return packing_; }
  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override;
  Work start(const TensorView& message) override {
    return Work::later([this, message] { reduce(ReduceOp::sum, message); });
  }
  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override;
  void broadcast(std::span<const TensorView> tensors, int root) override;
  void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) override;
  void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) override;
  void broadcast(std::span<IndexedSlices> slices, int root) override;

 protected:
  Communicator& communicator() { return communicator_; }
  Stream& stream() { return communicator_.stream(); }
  /// What a sum over the ranks is divided by for `op`.
  int divisor(ReduceOp op) const { return op == ReduceOp::mean ? communicator_.size() : 1; }

  /// In place: on every rank, or on `root` only.
  virtual void reduce(ReduceOp op, const TensorView& flat) = 0;
  virtual void reduce_to(ReduceOp op, const TensorView& flat, int root) = 0;

 private:
  template <class Body>
  void for_each_message(std::span<const TensorView> tensors, Body&& body);
  template <class Body>
  void packed(std::span<const TensorView> parts, Body&& body);

  Communicator& communicator_;
  Packing packing_;
  Scratch packed_;
};

}  // namespace lockstep::detail
