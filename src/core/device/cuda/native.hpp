// Shared by the folders that call CUDA: checked calls, and the handle behind a Stream.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include <lockstep/core/device/stream.hpp>

#include "core/base/parts.hpp"
#include "core/device/device_call.hpp"

namespace lockstep::detail {

/// DeviceError unless `result` is success. `call` names the function called; the message adds CUDA's text, the device
/// and, if the process has one, the rank. A late failure (is_late) is not blamed on `call`, which only found it.
LOCKSTEP_PARTS_API void check_cuda(cudaError_t result, const char* call);

/// check_cuda for destructors: it warns instead of throwing, and warns of late failures once in a process. Clears
/// CUDA's last error, so that the next call does not find it.
LOCKSTEP_PARTS_API void warn_cuda(cudaError_t result, const char* call) noexcept;

/// Whether `result` is a failure of work that ran on the GPU. An earlier call enqueued that work, and every later call
/// returns the same error.
bool is_late(cudaError_t result);

/// A late failure if there is one, otherwise success. Does not wait for work in progress.
cudaError_t late_failure();

/// " on cuda:1 of rank 2": the calling thread's GPU and the rank of the process, as far as they are known.
std::string device_and_rank();

/// The GPU of this process, for all its threads; negative before one is bound.
int bound_device();

/// The handle of a stream, for the call that it is an operand of.
class [[nodiscard]] StreamOfCall {
 public:
  explicit StreamOfCall(cudaStream_t stream) : stream_{stream} {}
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_;
  DeviceCall call_;
};

/// The stream's handle. Makes its GPU the calling thread's current device. InvalidArgument unless it is a GPU's stream.
LOCKSTEP_PARTS_API StreamOfCall native(Stream& stream);

}  // namespace lockstep::detail
