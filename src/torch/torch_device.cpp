#include "torch/torch_device.hpp"

namespace lockstep::libtorch {
namespace {

class Host final : public TorchDevice {
 public:
  at::Device device() const override { return at::kCPU; }
  void stream_follows() override {}
  void torch_follows() override {}
};

}  // namespace

std::unique_ptr<TorchDevice> make_torch_device(Stream& stream) {
  if (stream.kind() == DeviceKind::cpu) return std::make_unique<Host>();
  return make_torch_gpu(stream);
}

}  // namespace lockstep::libtorch
