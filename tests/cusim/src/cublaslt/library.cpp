// The library's handle, its version and its words for statuses.
#include <cuda_runtime_api.h>

#include "cublaslt/objects.hpp"

using namespace cusim;
using namespace cusim::cublaslt;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* made) {
  if (const auto status = begin_call("cublasLtCreate"); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!made) return CUBLAS_STATUS_INVALID_VALUE;
  if (settings().devices == 0 || late_failure() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *made = libraries().add({.device = current_device()});
  return CUBLAS_STATUS_SUCCESS;
}

// Frees memory of the GPU, and so waits for its work (the documentation of cublasLtDestroy).
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (const auto status = begin_call("cublasLtDestroy"); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  libraries().remove(handle, "cublasLtDestroy");
  (void)cudaDeviceSynchronize();
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value was used as an argument";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "an absent device architectural feature is required";
    case CUBLAS_STATUS_MAPPING_ERROR: return "an access to GPU memory space failed";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality is not supported";
    case CUBLAS_STATUS_LICENSE_ERROR: return "a license error was detected";
  }
  return "an unknown status";
}
