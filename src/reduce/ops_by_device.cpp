#include <algorithm>
#include <vector>

#include <lockstep/reduce/cross_device_ops.hpp>

namespace lockstep {
namespace {

class OpsByDevice final : public CrossDeviceOps {
 public:
  OpsByDevice(std::unique_ptr<CrossDeviceOps> host, std::unique_ptr<CrossDeviceOps> device)
      : host_{std::move(host)}, device_{std::move(device)} {}

  std::string_view name() const override { return device_->name(); }

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

 private:
  /// The host's first, and done when the GPU's begin: MPI and NCCL never move tensors at the same time.
  template <class Body>
  void by_device(std::span<const TensorView> tensors, Body&& body) {
    std::vector<TensorView> sorted{tensors.begin(), tensors.end()};
    const auto gpu = std::stable_partition(sorted.begin(), sorted.end(),
                                           [](const TensorView& tensor) { return tensor.device() == DeviceKind::cpu; });
    if (gpu != sorted.begin()) body(*host_, {sorted.begin(), gpu});
    if (gpu != sorted.end()) body(*device_, {gpu, sorted.end()});
  }

  std::unique_ptr<CrossDeviceOps> host_;
  std::unique_ptr<CrossDeviceOps> device_;
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_ops_by_device(std::unique_ptr<CrossDeviceOps> host,
                                                   std::unique_ptr<CrossDeviceOps> device) {
  return std::make_unique<OpsByDevice>(std::move(host), std::move(device));
}

}  // namespace lockstep
