// What other libraries ask liblockstep-cuda.so for.
#include "core/device/cuda/backend.hpp"

#include "core/base/parts.hpp"
#include "core/comm/nccl/nccl_communicator.hpp"
#include "core/comm/nccl/shared_gpu.hpp"
#include "core/device/gpu_backend.hpp"
#include "core/tensor/cuda/convert.hpp"
#include "models/ops/cuda/cuda_kernels.hpp"
#include "models/ops/gpu_kernels.hpp"
#include "sync/reduce/cuda/arithmetic.hpp"
#include "sync/update/cuda/cuda_update_kernels.hpp"

extern "C" LOCKSTEP_PARTS_API const lockstep::detail::GpuBackend* lockstep_gpu_backend() {
  using namespace lockstep;
  namespace cuda = detail::cuda;
  static constexpr detail::GpuKernels kernels{.make_kernels = ops::cuda::make_kernels};
  static constexpr detail::GpuBackend backend{
      .version = LOCKSTEP_VERSION,
      .device_count = cuda::device_count,
      .device_uuids = cuda::device_uuids,
      .why_no_device = cuda::why_no_device,
      .make_device = cuda::make_device,
      .device_index = cuda::device_index,
      .synchronize_device = cuda::synchronize_device,
      .read_device = cuda::read_device,
      .memory_bytes = cuda::memory_bytes,
      .make_marks = cuda::make_marks,
      .make_nccl_communicator = make_real_nccl_communicator,
      .allow_shared_gpu = set_shared_gpu_environment,
      .convert = cuda::convert,
      .tree_sum = cuda::tree_sum,
      .add = cuda::add,
      .divide = cuda::divide,
      .make_update_kernels = cuda::make_update_kernels,
      .kernels = &kernels,
  };
  return &backend;
}
