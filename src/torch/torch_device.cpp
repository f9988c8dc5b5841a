#include "torch/torch_device.hpp"

namespace lockstep::libtorch {
namespace {

class Host final : public TorchDevice {
 public:
  using TorchDevice::TorchDevice;

  at::Device device() const override { return at::kCPU; }
  void stream_follows() override {}
  void torch_follows() override {}
};

}  // namespace

at::Tensor TorchDevice::on_host(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  stream_follows();
  stream_.synchronize();
  return tensor.to(at::kCPU);
}

std::unique_ptr<TorchDevice> make_torch_device(Stream& stream) {
  if (stream.kind() == DeviceKind::cpu) return std::make_unique<Host>(stream);
  return make_torch_gpu(stream);
}

}  // namespace lockstep::libtorch
