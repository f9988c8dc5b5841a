#include <lockstep/reduce/cross_device_ops.hpp>

#include "reduce/flat_ops.hpp"

namespace lockstep {
namespace {

class BackendOrderOps final : public detail::FlatOps {
 public:
  using FlatOps::FlatOps;

  std::string_view name() const override { return "sum in the backend's order"; }

 protected:
  void sum(const TensorView& flat) override { communicator().all_reduce(flat).wait(); }
  void sum_to(const TensorView& flat, int root) override { communicator().reduce(flat, root).wait(); }
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_backend_order_ops(Communicator& communicator) {
  return std::make_unique<BackendOrderOps>(communicator);
}

}  // namespace lockstep
