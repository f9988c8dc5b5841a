// Reductions in the backend's own order.
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "reduce/arithmetic.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/dispatch.hpp"
#include "reduce/flat_ops.hpp"
#include "reduce/implementations.hpp"

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

  Work start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    if (stream().kind() == DeviceKind::cpu) return FlatOps::start_all_reduce(op, tensors);
    auto started = std::make_shared<std::list<Started>>();
    for_each_message(tensors, [&](std::vector<TensorView> parts) {
      Started& each = started->emplace_back();
      each.message.emplace(std::move(parts), stream(), [&](DType dtype, std::int64_t count) {
        return each.memory.take(communicator(), dtype, count);
      });
      each.sum.emplace(communicator().all_reduce(each.message->flat()));
    });
    return Work::later([this, op, started] {
      for (Started& each : *started) {
        each.sum->wait();
        detail::divide(each.message->flat(), divisor(op), stream());
        each.message->unpack(stream());
      }
    });
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
  /// A message under way, with memory of its own: the next one may start before this has ended.
  struct Started {
    detail::Scratch memory;
    std::optional<detail::Message> message;
    std::optional<Work> sum;
  };

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
