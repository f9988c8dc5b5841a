// The API's functions that allocate and free.
#include <array>
#include <cstdint>

#include "runtime/arena.hpp"
#include "runtime/call.hpp"
#include "runtime/world.hpp"

using namespace cusim;

namespace {

/// What can be set of a pool. It changes nothing here: a freed byte is free at once, and reused in the stream's order.
struct PoolSettings {
  std::uint64_t release_threshold = 0;
  int reuses[3] = {1, 1, 1};  ///< by the attributes from cudaMemPoolReuseFollowEventDependencies on
};

std::array<PoolSettings, 64> pools;

/// Each device's default pool.
cudaMemPool_t pool_of(int device) {
  return reinterpret_cast<cudaMemPool_t>(&pools[static_cast<std::size_t>(device)]);
}

int device_of(cudaMemPool_t pool) {
  return static_cast<int>(reinterpret_cast<PoolSettings*>(pool) - pools.data());
}

bool is_pool(cudaMemPool_t pool) {
  for (int device = 0; device < settings().devices; ++device)
    if (pool_of(device) == pool) return true;
  return false;
}

/// Null if the attribute is none of them.
int* reuse_of(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  if (attribute < cudaMemPoolReuseFollowEventDependencies || attribute > cudaMemPoolReuseAllowInternalDependencies)
    return nullptr;
  return &reinterpret_cast<PoolSettings*>(pool)->reuses[attribute - cudaMemPoolReuseFollowEventDependencies];
}

cudaError_t set_attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, const void* value) {
  if (!is_pool(pool) || !value) return cudaErrorInvalidValue;
  const Lock lock{world().mutex};
  if (int* const reuse = reuse_of(pool, attribute)) {
    *reuse = *static_cast<const int*>(value);
    return cudaSuccess;
  }
  const std::uint64_t number = *static_cast<const std::uint64_t*>(value);
  if (attribute == cudaMemPoolAttrReleaseThreshold) {
    reinterpret_cast<PoolSettings*>(pool)->release_threshold = number;
    return cudaSuccess;
  }
  const bool is_most = attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh;
  if (!is_most || number != 0) return cudaErrorInvalidValue;
  reset_most(device_of(pool));
  return cudaSuccess;
}

cudaError_t get_attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (!is_pool(pool) || !value) return cudaErrorInvalidValue;
  const Lock lock{world().mutex};
  if (const int* const reuse = reuse_of(pool, attribute)) {
    *static_cast<int*>(value) = *reuse;
    return cudaSuccess;
  }
  const Room room = room_of(device_of(pool));
  auto& number = *static_cast<std::uint64_t*>(value);
  if (attribute == cudaMemPoolAttrReleaseThreshold)
    number = reinterpret_cast<PoolSettings*>(pool)->release_threshold;
  else if (attribute == cudaMemPoolAttrUsedMemCurrent || attribute == cudaMemPoolAttrReservedMemCurrent)
    number = room.used;
  else if (attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh)
    number = room.most;
  else
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

/// Memory whose free is enqueued comes back if one waits.
std::byte* allocate_patiently(Lock& lock, std::size_t bytes, int device, From from, memory::State state) {
  if (std::byte* const at = allocate(bytes, device, from, state)) return at;
  if (from == From::graph || wait_for_device(lock, device) != cudaSuccess) return nullptr;
  return allocate(bytes, device, from, state);
}

cudaError_t allocate_now(void** made, std::size_t bytes) {
  if (!made) return cudaErrorInvalidValue;
  Lock lock{world().mutex};
  if (const cudaError_t refused = refuse_unsafe(); refused != cudaSuccess) return refused;
  *made = nullptr;
  if (bytes == 0) return cudaSuccess;
  *made = allocate_patiently(lock, bytes, current_device(), From::malloc, memory::unwritten);
  return *made ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t free_now(void* begin) {
  if (!begin) return cudaSuccess;
  Lock lock{world().mutex};
  if (const cudaError_t refused = refuse_unsafe(); refused != cudaSuccess) return refused;
  if (!find_allocation(begin)) return cudaErrorInvalidValue;
  const Allocation at = free_for_host(begin, "cudaFree");
  // Only memory of cudaMalloc is waited for.
  if (at.from == From::malloc)
    if (const cudaError_t failed = wait_for_device(lock, at.device); failed != cudaSuccess) return failed;
  free_for_gpu(at.begin, "cudaFree");
  return cudaSuccess;
}

cudaError_t allocate_async(void** made, std::size_t bytes, cudaStream_t handle) {
  if (!made) return cudaErrorInvalidValue;
  return with_stream(handle, [&](Lock& lock, cudaStream_t stream) {
    *made = nullptr;
    if (bytes == 0) return cudaSuccess;
    const From from = stream->capture ? From::graph : From::malloc_async;
    std::byte* const begin = allocate_patiently(lock, bytes, stream->device, from, memory::pending);
    if (!begin) return cudaErrorMemoryAllocation;
    *made = begin;
    return submit(lock, stream, "cudaMallocAsync", [begin] {
      begin_for_gpu(begin);
      return true;
    });
  });
}

cudaError_t free_async(void* begin, cudaStream_t handle) {
  return with_stream(handle, [&](Lock& lock, cudaStream_t stream) {
    if (!begin || !find_allocation(begin)) return cudaErrorInvalidValue;
    const Allocation at = free_for_host(begin, "cudaFreeAsync");
    return submit(lock, stream, "cudaFreeAsync", [at] {
      free_for_gpu(at.begin, "cudaFreeAsync");
      return true;
    });
  });
}

cudaError_t allocate_host(void** made, std::size_t bytes) {
  if (!made) return cudaErrorInvalidValue;
  const Lock lock{world().mutex};
  if (const cudaError_t refused = refuse_unsafe(); refused != cudaSuccess) return refused;
  *made = nullptr;
  if (bytes == 0) return cudaSuccess;
  *made = allocate_pinned(bytes);
  return *made ? cudaSuccess : cudaErrorMemoryAllocation;
}

}  // namespace

cudaError_t cudaMalloc(void** made, std::size_t bytes) {
  return call("cudaMalloc", [&] { return allocate_now(made, bytes); });
}

cudaError_t cudaFree(void* begin) {
  return call("cudaFree", [&] { return free_now(begin); });
}

cudaError_t cudaMallocAsync(void** made, std::size_t bytes, cudaStream_t stream) {
  return call_on("cudaMallocAsync", stream, [&] { return allocate_async(made, bytes, stream); });
}

cudaError_t cudaFreeAsync(void* begin, cudaStream_t stream) {
  return call_on("cudaFreeAsync", stream, [&] { return free_async(begin, stream); });
}

cudaError_t cudaMallocHost(void** made, std::size_t bytes) {
  return call("cudaMallocHost", [&] { return allocate_host(made, bytes); });
}

cudaError_t cudaHostAlloc(void** made, std::size_t bytes, unsigned flags) {
  return call("cudaHostAlloc", [&] {
    constexpr unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    return flags & ~known ? cudaErrorInvalidValue : allocate_host(made, bytes);
  });
}

cudaError_t cudaFreeHost(void* begin) {
  return call("cudaFreeHost", [&] {
    if (!begin) return cudaSuccess;
    const Lock lock{world().mutex};
    if (const cudaError_t refused = refuse_unsafe(); refused != cudaSuccess) return refused;
    return free_pinned(begin) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostRegister(void* begin, std::size_t bytes, unsigned flags) {
  return call("cudaHostRegister", [&] {
    constexpr unsigned known = cudaHostRegisterPortable | cudaHostRegisterMapped;
    if (!begin || bytes == 0 || (flags & ~known)) return cudaErrorInvalidValue;
    return pin(begin, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* begin) {
  return call("cudaHostUnregister", [&] { return unpin(begin) ? cudaSuccess : cudaErrorHostMemoryNotRegistered; });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  return call("cudaHostGetDevicePointer", [&] {
    if (!device || flags != 0 || memory_at(host).kind != MemoryKind::pinned) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* all) {
  return call("cudaMemGetInfo", [&] {
    const Room room = room_of(current_device());
    if (unused) *unused = room.total - room.used;
    if (all) *all = room.total;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call("cudaPointerGetAttributes", [&] {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = {};
    auto* const own = const_cast<void*>(address);
    const Memory memory = memory_at(address);
    attributes->device = memory.kind == MemoryKind::device ? memory.device : -2;
    if (memory.kind == MemoryKind::device) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->devicePointer = own;
    } else if (memory.kind == MemoryKind::pinned) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = current_device();
      attributes->devicePointer = own;
      attributes->hostPointer = own;
    } else {
      attributes->hostPointer = own;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call("cudaDeviceGetDefaultMemPool", [&] {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    if (!pool) return cudaErrorInvalidValue;
    *pool = pool_of(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return call("cudaDeviceGetMemPool", [&] {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    if (!pool) return cudaErrorInvalidValue;
    *pool = pool_of(device);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call("cudaMemPoolSetAttribute", [&] { return set_attribute(pool, attribute, value); });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call("cudaMemPoolGetAttribute", [&] { return get_attribute(pool, attribute, value); });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t) {
  return call("cudaMemPoolTrimTo", [&] { return is_pool(pool) ? cudaSuccess : cudaErrorInvalidValue; });
}
