// The simulated GPUs.
#include <cstdio>
#include <cstring>

#include "runtime/arena.hpp"
#include "runtime/call.hpp"
#include "runtime/gpu.hpp"

using namespace cusim;

namespace {

constexpr int version = 13000;

thread_local int own_device = 0;

bool is_device(int device) {
  return device >= 0 && device < settings().devices;
}

cudaDeviceProp properties(int device) {
  cudaDeviceProp all{};
  std::snprintf(all.name, sizeof all.name, "cusim GPU");
  std::memcpy(all.uuid.bytes, "cusim", 5);
  all.uuid.bytes[15] = static_cast<char>(device);
  all.totalGlobalMem = settings().memory_bytes;
  all.sharedMemPerBlock = gpu.shared_of_block;
  all.regsPerBlock = gpu.registers;
  all.warpSize = gpu.warp;
  all.memPitch = 2147483647;
  all.maxThreadsPerBlock = gpu.threads_of_block;
  std::memcpy(all.maxThreadsDim, gpu.largest_block, sizeof all.maxThreadsDim);
  std::memcpy(all.maxGridSize, gpu.largest_grid, sizeof all.maxGridSize);
  all.totalConstMem = gpu.constant;
  all.major = gpu.major;
  all.minor = gpu.minor;
  all.textureAlignment = 512;
  all.texturePitchAlignment = 32;
  all.multiProcessorCount = gpu.multiprocessors;
  all.canMapHostMemory = 1;
  all.concurrentKernels = 1;
  all.ECCEnabled = 1;
  all.pciBusID = device + 1;
  all.asyncEngineCount = 3;
  all.unifiedAddressing = 1;
  all.memoryBusWidth = 5120;
  all.l2CacheSize = gpu.cache;
  all.maxThreadsPerMultiProcessor = gpu.threads_of_multiprocessor;
  all.streamPrioritiesSupported = 1;
  all.sharedMemPerMultiprocessor = gpu.shared_of_multiprocessor;
  all.regsPerMultiprocessor = gpu.registers;
  all.canUseHostPointerForRegisteredMem = 1;
  all.cooperativeLaunch = 1;
  all.sharedMemPerBlockOptin = gpu.shared_of_block_optin;
  all.maxBlocksPerMultiProcessor = gpu.blocks_of_multiprocessor;
  all.reservedSharedMemPerBlock = 1024;
  all.hostRegisterSupported = 1;
  all.memoryPoolsSupported = 1;
  all.unifiedFunctionPointers = 1;
  all.hostNumaId = -1;
  all.deviceNumaId = -1;
  return all;
}

cudaError_t attribute(int* value, cudaDeviceAttr attribute, int device) {
  const cudaDeviceProp all = properties(device);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = all.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = all.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = all.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = all.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = all.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = all.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = all.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = gpu.shared_of_block; break;
    case cudaDevAttrTotalConstantMemory: *value = gpu.constant; break;
    case cudaDevAttrWarpSize: *value = all.warpSize; break;
    case cudaDevAttrMaxPitch: *value = 2147483647; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = all.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    case cudaDevAttrTextureAlignment: *value = 512; break;
    case cudaDevAttrMultiProcessorCount: *value = all.multiProcessorCount; break;
    case cudaDevAttrEccEnabled: *value = all.ECCEnabled; break;
    case cudaDevAttrPciBusId: *value = all.pciBusID; break;
    case cudaDevAttrL2CacheSize: *value = all.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = all.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrAsyncEngineCount: *value = all.asyncEngineCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = all.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = all.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = gpu.shared_of_multiprocessor; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = all.regsPerMultiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = gpu.shared_of_block_optin; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = all.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrConcurrentManagedAccess: *value = 0; break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace

int cusim::current_device() {
  return own_device;
}

cudaError_t cudaDriverGetVersion(int* out) {
  count("cudaDriverGetVersion");
  if (!out) return leave(cudaErrorInvalidValue);
  *out = version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* out) {
  count("cudaRuntimeGetVersion");
  if (!out) return leave(cudaErrorInvalidValue);
  *out = version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* out) {
  return call("cudaGetDeviceCount", [&] {
    if (!out) return cudaErrorInvalidValue;
    *out = settings().devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    own_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* out) {
  return call("cudaGetDevice", [&] {
    if (!out) return cudaErrorInvalidValue;
    *out = own_device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return call("cudaGetDeviceProperties", [&] {
    if (!out) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    *out = properties(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr asked, int device) {
  return call("cudaDeviceGetAttribute", [&] {
    if (!out) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    return attribute(out, asked, device);
  });
}
