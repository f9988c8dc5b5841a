// Reductions that send host tensors and GPU tensors to different planes.
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/implementations.hpp"
#include "reduce/slice_map.hpp"

namespace lockstep {
namespace {

class OpsByDevice final : public CrossDeviceOps {
 public:
  OpsByDevice(std::unique_ptr<CrossDeviceOps> host, std::unique_ptr<CrossDeviceOps> device)
      : host_{std::move(host)}, device_{std::move(device)} {}

  std::string_view name() const override { return device_->name(); }
  const Packing& packing() const override { return device_->packing(); }
  std::int64_t enough_bytes() const override { return device_->enough_bytes(); }
  std::optional<DType> gradient_compression() const override { return device_->gradient_compression(); }
  Work start(const TensorView& message) override { return ops_of(message.device()).start(message); }
  Work start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    auto started = std::make_shared<std::vector<Work>>();
    by_device(tensors, [&](CrossDeviceOps& ops, std::span<const TensorView> some) {
      started->push_back(ops.start_all_reduce(op, some));
    });
    return Work::later([started] {
      for (Work& work : *started) work.wait();
    });
  }

  /// Of the variables, which are on the device.
  std::vector<int> slice_owners() const override { return device_->slice_owners(); }
  Work start_scatter(const Sliced& message) override { return ops_of(message.memory.device()).start_scatter(message); }
  void gather_slices(std::span<const Sliced> messages) override { device_->gather_slices(messages); }

  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    by_device(tensors, [&](CrossDeviceOps& ops, std::span<const TensorView> some) { ops.all_reduce(op, some); });
  }
  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override {
    by_device(tensors,
              [&](CrossDeviceOps& ops, std::span<const TensorView> some) { ops.reduce_to_one(op, some, root); });
  }
  void broadcast(std::span<const TensorView> tensors, int root) override {
    by_device(tensors, [&](CrossDeviceOps& ops, std::span<const TensorView> some) { ops.broadcast(some, root); });
  }

  void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) override {
    by_device(slices, [&](CrossDeviceOps& ops, std::span<IndexedSlices> some) { ops.all_reduce(op, some); });
  }
  void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) override {
    by_device(slices, [&](CrossDeviceOps& ops, std::span<IndexedSlices> some) { ops.reduce_to_one(op, some, root); });
  }
  void broadcast(std::span<IndexedSlices> slices, int root) override {
    by_device(slices, [&](CrossDeviceOps& ops, std::span<IndexedSlices> some) { ops.broadcast(some, root); });
  }
  void all_gather(std::span<Tensor> tensors) override {
    by_device(tensors, [&](CrossDeviceOps& ops, std::span<Tensor> some) { ops.all_gather(some); });
  }

 private:
  /// The host's first, complete before the GPU's begin: MPI and NCCL never move tensors at the same time.
  template <class Body>
  void by_device(std::span<const TensorView> tensors, Body&& body) {
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
      std::vector<TensorView> some;
      for (const TensorView& tensor : tensors)
        if (tensor.device() == kind) some.push_back(tensor);
      if (!some.empty()) body(ops_of(kind), some);
    }
  }
  /// The same for what is replaced.
  template <class T, class Body>
  void by_device(std::span<T> all, Body&& body) {
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
      std::vector<T> some;
      for (const T& each : all)
        if (device_of(each) == kind) some.push_back(each);
      if (some.empty()) continue;
      body(ops_of(kind), some);
      auto next = some.begin();
      for (T& each : all)
        if (device_of(each) == kind) each = std::move(*next++);
    }
  }

  static DeviceKind device_of(const Tensor& tensor) { return tensor.device(); }
  static DeviceKind device_of(const IndexedSlices& slices) { return slices.values.device(); }

  CrossDeviceOps& ops_of(DeviceKind kind) { return kind == DeviceKind::cpu ? *host_ : *device_; }

  std::unique_ptr<CrossDeviceOps> host_;
  std::unique_ptr<CrossDeviceOps> device_;
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_ops_by_device(std::unique_ptr<CrossDeviceOps> host,
                                                   std::unique_ptr<CrossDeviceOps> device) {
  return std::make_unique<OpsByDevice>(std::move(host), std::move(device));
}

}  // namespace lockstep
