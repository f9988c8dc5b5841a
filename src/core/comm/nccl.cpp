// Passes calls for NCCL on to the GPU backend, if this process finds one.
#include <utility>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/gpu_backend.hpp"

namespace lockstep {

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device, Stream& compute,
                                                     NcclOptions options) {
  return detail::gpu_backend().make_nccl_communicator(host, device, compute, std::move(options));
}

void allow_shared_gpu() {
  if (const auto* const gpus = detail::gpu_library().backend) gpus->allow_shared_gpu();
}

}  // namespace lockstep
