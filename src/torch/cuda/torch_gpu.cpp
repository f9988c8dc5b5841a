#include <c10/cuda/CUDAStream.h>

#include "core/device/cuda/native.hpp"
#include "core/device/device_call.hpp"
#include "core/device/devices.hpp"
#include "torch/torch_device.hpp"

namespace lockstep::libtorch {
namespace {

using lockstep::detail::check_cuda;
using lockstep::detail::warn_cuda;

/// A CUDA event, for ordering only.
class Mark {
 public:
  Mark() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() { warn_cuda(cudaEventDestroy(event_), "cudaEventDestroy"); }

  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Work enqueued on `later` from here on starts after the work enqueued on `earlier`.
void order(cudaStream_t earlier, cudaStream_t later) {
  const lockstep::detail::DeviceCall call;
  const Mark mark;
  check_cuda(cudaEventRecord(mark.get(), earlier), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(later, mark.get(), 0), "cudaStreamWaitEvent");
}

class Gpu final : public TorchDevice {
 public:
  explicit Gpu(Stream& stream) : TorchDevice{stream}, index_(lockstep::detail::cuda_device_index()) {}

  at::Device device() const override { return {at::kCUDA, static_cast<at::DeviceIndex>(index_)}; }

  // native() comes first: it makes the GPU current on this thread, which may be one of autograd's.
  void stream_follows() override {
    const cudaStream_t ours = lockstep::detail::native(stream());
    order(of_torch(), ours);
  }
  void torch_follows() override {
    const cudaStream_t ours = lockstep::detail::native(stream());
    order(ours, of_torch());
  }

 private:
  cudaStream_t of_torch() const { return c10::cuda::getCurrentCUDAStream(device().index()).stream(); }

  int index_;
};

}  // namespace

std::unique_ptr<TorchDevice> make_torch_gpu(Stream& stream) {
  return std::make_unique<Gpu>(stream);
}

}  // namespace lockstep::libtorch
