// LibTorch on a simulated GPU (simulated_gpu.cpp), whose memory torch takes for the host's. Torch's own work is done
// when its call returns, so this shows where torch does not wait for the strategy, not the other way round.
#include "torch/torch_device.hpp"

namespace lockstep::libtorch {
namespace {

class SimulatedTorchGpu final : public TorchDevice {
 public:
  using TorchDevice::TorchDevice;

  at::Device device() const override { return at::kCPU; }
  void stream_follows() override {}
  void torch_follows() override { stream().synchronize(); }
};

}  // namespace

std::unique_ptr<TorchDevice> make_torch_gpu(Stream& stream) {
  return std::make_unique<SimulatedTorchGpu>(stream);
}

}  // namespace lockstep::libtorch
