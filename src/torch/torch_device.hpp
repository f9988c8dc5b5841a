// The device of a strategy as LibTorch knows it, and the seam to LibTorch's CUDA. Meson chooses which file implements
// the seam; a test can put another in its place.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <lockstep/device/device.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::libtorch {

/// On a GPU, torch computes on a stream of its own: on the current one of the thread that calls. This orders its work
/// with that of the strategy's stream, and blocks nobody. On the host there is nothing to order.
class TorchDevice {
 public:
  virtual ~TorchDevice() = default;

  /// Where torch has the memory of the strategy's stream.
  virtual at::Device device() const = 0;

  /// Whatever the strategy's stream is given from here on starts after what torch has been given.
  virtual void stream_follows() = 0;

  /// Whatever torch is given from here on starts after what the strategy's stream has been given.
  virtual void torch_follows() = 0;
};

/// For the device of `stream`, which must outlive the result. InvalidArgument for a GPU if the build has none for
/// torch.
std::unique_ptr<TorchDevice> make_torch_device(Stream& stream);

/// The same for a GPU's.
std::unique_ptr<TorchDevice> make_torch_gpu(Stream& stream);

}  // namespace lockstep::libtorch
