// The GPU of a bridge to a LibTorch without CUDA.
#include <lockstep/core/base/error.hpp>

#include "torch/torch_device.hpp"

namespace lockstep::libtorch {

std::unique_ptr<TorchDevice> make_torch_gpu(Stream&) {
  throw InvalidArgument{
      "DataParallel on a strategy whose device is cuda, in a bridge that was built without LibTorch's CUDA: expected "
      "cpu"};
}

}  // namespace lockstep::libtorch
