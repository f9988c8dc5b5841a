// What the folders that call CUDA share: checked calls, and the handle behind a Stream.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include <lockstep/device/device.hpp>

namespace lockstep::detail {

/// DeviceError unless `result` is success. `call` names what was called; the message adds CUDA's text, the device and
/// the rank, if the process has one. A late failure (is_late) is not blamed on `call`, which only found it.
void check_cuda(cudaError_t result, const char* call);

/// The same for destructors: a warning instead of an exception, and a late failure is reported once in a process. The
/// failure is not left behind for the next call to find.
void warn_cuda(cudaError_t result, const char* call) noexcept;

/// Whether `result` comes from work that ran on the GPU. Such work was enqueued by an earlier call, and every call
/// after it returns the same.
bool is_late(cudaError_t result);

/// The late failure that there is to find, success where there is none. Does not wait for work under way.
cudaError_t late_failure();

/// " on cuda:1 of rank 2": the GPU of the calling thread and the rank of the process, as far as they are known.
std::string device_and_rank();

/// The stream's handle, and its GPU made the calling thread's. InvalidArgument unless it is a GPU's stream.
cudaStream_t native(Stream& stream);

}  // namespace lockstep::detail
