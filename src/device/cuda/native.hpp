// Shared by the folders that call CUDA: checked calls, and the handle behind a Stream.
#pragma once

#include <cuda_runtime_api.h>

#include <lockstep/device/device.hpp>

namespace lockstep::detail {

/// DeviceError unless `result` is success. `call` names the function called; the message adds CUDA's text, the device
/// and the rank.
void check_cuda(cudaError_t result, const char* call);

/// The stream's handle. Makes its GPU the calling thread's current device. InvalidArgument unless it is a GPU's stream.
cudaStream_t native(Stream& stream);

}  // namespace lockstep::detail
