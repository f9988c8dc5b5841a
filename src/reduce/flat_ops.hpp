// What all reductions share: from a list of tensors to few flat pieces of memory, and back.
#pragma once

#include <lockstep/reduce/cross_device_ops.hpp>

namespace lockstep::detail {

/// Hands tensors that lie next to each other in memory on as they are, others as a packed copy, one call a dtype.
class FlatOps : public CrossDeviceOps {
 public:
  /// Tensors are in memory of the device that `communicator` serves. It must outlive the result.
  explicit FlatOps(Communicator& communicator) : communicator_{communicator} {}

  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override;
  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override;
  void broadcast(std::span<const TensorView> tensors, int root) override;
  void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) override;
  void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) override;
  void broadcast(std::span<IndexedSlices> slices, int root) override;

 protected:
  Communicator& communicator() { return communicator_; }
  Stream& stream() { return communicator_.stream(); }

  /// In place; on every rank, or on `root` alone.
  virtual void sum(const TensorView& flat) = 0;
  virtual void sum_to(const TensorView& flat, int root) = 0;

 private:
  template <class Body>
  void for_each_flat(std::span<const TensorView> tensors, Body&& body);
  template <class Body>
  void packed(std::span<const TensorView> tensors, Body&& body);

  void finish(ReduceOp op, const TensorView& sum);

  Communicator& communicator_;
};

}  // namespace lockstep::detail
