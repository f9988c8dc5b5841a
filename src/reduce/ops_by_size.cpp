// Reductions that small tensors and large ones have of their own.
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/implementations.hpp"
#include "reduce/slice_map.hpp"

namespace lockstep {
namespace {

class OpsBySize final : public CrossDeviceOps {
 public:
  OpsBySize(std::vector<SizedOps> smaller, std::unique_ptr<CrossDeviceOps> rest)
      : smaller_{std::move(smaller)}, rest_{std::move(rest)} {}

  std::string_view name() const override { return rest_->name(); }
  const Packing& packing() const override { return rest_->packing(); }
  std::int64_t enough_bytes() const override { return rest_->enough_bytes(); }
  std::optional<DType> gradient_compression() const override { return rest_->gradient_compression(); }
  SharedAllocation allocate_shared(std::size_t bytes) override { return rest_->allocate_shared(bytes); }

  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    by_size(tensors, [&](CrossDeviceOps& ops, std::span<const TensorView> some) { ops.all_reduce(op, some); });
  }
  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override {
    by_size(tensors, [&](CrossDeviceOps& ops, std::span<const TensorView> some) { ops.reduce_to_one(op, some, root); });
  }
  Work start(const TensorView& message) override { return ops_of(message).start(message); }
  Work start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    auto started = std::make_shared<std::vector<Work>>();
    by_size(tensors, [&](CrossDeviceOps& ops, std::span<const TensorView> some) {
      started->push_back(ops.start_all_reduce(op, some));
    });
    return Work::later([started] {
      for (Work& work : *started) work.wait();
    });
  }

  std::vector<int> slice_owners() const override { return rest_->slice_owners(); }
  /// What goes another way than the rest is summed as a whole, for its bits.
  Work start_scatter(const Sliced& message) override {
    CrossDeviceOps& ops = ops_of(message.memory);
    return &ops == rest_.get() ? ops.start_scatter(message) : ops.start(message.memory);
  }
  void gather_slices(std::span<const Sliced> messages) override { rest_->gather_slices(messages); }

  void broadcast(std::span<const TensorView> tensors, int root) override { rest_->broadcast(tensors, root); }

  // Ranks may have different numbers of rows, so their bytes choose nothing.
  void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) override { rest_->all_reduce(op, slices); }
  void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) override {
    rest_->reduce_to_one(op, slices, root);
  }
  void broadcast(std::span<IndexedSlices> slices, int root) override { rest_->broadcast(slices, root); }
  void all_gather(std::span<Tensor> tensors) override { rest_->all_gather(tensors); }

 private:
  CrossDeviceOps& ops_of(const TensorView& tensor) {
    for (const SizedOps& some : smaller_)
      if (static_cast<std::int64_t>(tensor.bytes()) <= some.up_to_bytes) return *some.ops;
    return *rest_;
  }

  /// The smallest first, so that all ranks call in one order.
  template <class Body>
  void by_size(std::span<const TensorView> tensors, Body&& body) {
    const auto reduce = [&](CrossDeviceOps& ops) {
      std::vector<TensorView> some;
      for (const TensorView& tensor : tensors)
        if (&ops_of(tensor) == &ops) some.push_back(tensor);
      if (!some.empty()) body(ops, some);
    };
    for (const SizedOps& some : smaller_) reduce(*some.ops);
    reduce(*rest_);
  }

  std::vector<SizedOps> smaller_;
  std::unique_ptr<CrossDeviceOps> rest_;
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_ops_by_size(std::vector<SizedOps> smaller, std::unique_ptr<CrossDeviceOps> rest) {
  return std::make_unique<OpsBySize>(std::move(smaller), std::move(rest));
}

}  // namespace lockstep
