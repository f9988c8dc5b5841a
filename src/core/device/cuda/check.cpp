// What becomes of a CUDA call that failed.
#include <atomic>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/log_settings.hpp"
#include "core/device/cuda/native.hpp"

namespace lockstep::detail {
namespace {

std::atomic<bool> late_failure_is_known = false;

std::string describe(cudaError_t result, const char* call) {
  const std::string reason = fmt::format("{} ({})", cudaGetErrorString(result), cudaGetErrorName(result));
  if (is_late(result))
    return fmt::format("work enqueued earlier{} failed: {}; {} found it", device_and_rank(), reason, call);
  return fmt::format("{} failed{}: {}", call, device_and_rank(), reason);
}

}  // namespace

bool is_late(cudaError_t result) {
  switch (static_cast<int>(result)) {
    // Those of which CUDA's documentation says that they leave the process in an inconsistent state.
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
    // Those that it says are detected during execution.
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable: return true;
    default: return false;
  }
}

cudaError_t late_failure() {
  const cudaError_t result = cudaStreamQuery(nullptr);
  if (is_late(result)) return result;
  if (result != cudaSuccess) (void)cudaGetLastError();
  return cudaSuccess;
}

std::string device_and_rank() {
  std::string where;
  int device = -1;
  // After a late failure CUDA returns that instead.
  if (cudaGetDevice(&device) != cudaSuccess) device = bound_device();
  if (device >= 0) where += fmt::format(" on cuda:{}", device);
  if (log::rank() >= 0) where += fmt::format(" of rank {}", log::rank());
  return where;
}

void check_cuda(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  if (is_late(result)) late_failure_is_known = true;
  const std::string message = describe(result, call);
  (void)cudaGetLastError();
  throw DeviceError{message};
}

void warn_cuda(cudaError_t result, const char* call) noexcept {
  if (result == cudaSuccess) return;
  try {
    // cudaErrorCudartUnloading: the process is ending, and the driver has taken everything back already.
    if (result != cudaErrorCudartUnloading && (!is_late(result) || !late_failure_is_known.exchange(true)))
      log::warning(describe(result, call));
  } catch (...) {  // A destructor has nobody else to tell.
  }
  (void)cudaGetLastError();
}

}  // namespace lockstep::detail
