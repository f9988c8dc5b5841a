// Reductions in the backend's own order.
#include <lockstep/reduce/cross_device_ops.hpp>

#include "reduce/arithmetic.hpp"
#include "reduce/dispatch.hpp"
#include "reduce/flat_ops.hpp"

namespace lockstep {
namespace {

class BackendOrderOps final : public detail::FlatOps {
 public:
  BackendOrderOps(Communicator& communicator, const Packing& packing)
      : FlatOps{communicator, packing}, fixed_order_{make_fixed_order_ops(communicator)} {}

  std::string_view name() const override { return "sum in the backend's order"; }

  Work start(const TensorView& message) override {
    if (message.device() == DeviceKind::cpu) return FlatOps::start(message);
    return communicator().all_reduce(message);
  }

 protected:
  void reduce(ReduceOp op, const TensorView& flat) override {
    if (!backend_sums(flat)) return fixed_order_->all_reduce(op, {&flat, 1});
    communicator().all_reduce(flat).wait();
    detail::divide(flat, divisor(op), stream());
  }
  void reduce_to(ReduceOp op, const TensorView& flat, int root) override {
    if (!backend_sums(flat)) return fixed_order_->reduce_to_one(op, {&flat, 1}, root);
    communicator().reduce(flat, root).wait();
    if (communicator().rank() == root) detail::divide(flat, divisor(op), stream());
  }

 private:
  /// No host backend sums 16-bit floats.
  static bool backend_sums(const TensorView& flat) {
    return flat.device() != DeviceKind::cpu || !is_16_bit_float(flat.dtype());
  }

  std::unique_ptr<CrossDeviceOps> fixed_order_;
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_backend_order_ops(Communicator& communicator, Packing packing) {
  return std::make_unique<BackendOrderOps>(communicator, packing);
}

}  // namespace lockstep
