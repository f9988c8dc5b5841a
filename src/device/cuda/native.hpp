// What the folders that call CUDA share: checked calls, and the handle behind a Stream.
#pragma once

#include <cuda_runtime_api.h>

#include <lockstep/device/device.hpp>

namespace lockstep::detail {

/// DeviceError unless `result` is success. `call` names what was called; the message adds CUDA's text and the device.
void check_cuda(cudaError_t result, const char* call);

/// The stream's handle, and its GPU made the calling thread's. InvalidArgument unless it is a GPU's stream.
cudaStream_t native(Stream& stream);

}  // namespace lockstep::detail
