// Allocations, copies, memsets.
#include <algorithm>
#include <cstdint>

#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

namespace {

template <class T = int>
T* allocate_async(std::size_t count, cudaStream_t stream) {
  void* made = nullptr;
  OK(cudaMallocAsync(&made, count * sizeof(T), stream));
  return static_cast<T*>(made);
}

cudaMemPool_t default_pool() {
  cudaMemPool_t pool = nullptr;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  return pool;
}

std::uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
  std::uint64_t value = 0;
  OK(cudaMemPoolGetAttribute(pool, which, &value));
  return value;
}

}  // namespace

// CUDA C++ Programming Guide, Device memory accesses: addresses from the runtime's allocations are aligned to at least
// 256 bytes.
PROBE(malloc_aligns_to_256) {
  for (const std::size_t bytes : {1, 3, 100, 257, 5000}) {
    const Array<char> one(bytes);
    expect("bits below 256 of an address are", reinterpret_cast<std::uintptr_t>(one.data()) % 256, std::uintptr_t{0});
  }
}
PROBE(malloc_async_aligns_to_256) {
  const Stream stream;
  for (const std::size_t bytes : {1, 3, 100, 257, 5000}) {
    char* const one = allocate_async<char>(bytes, stream);
    OK(cudaFreeAsync(one, stream));
    expect("bits below 256 of an address are", reinterpret_cast<std::uintptr_t>(one) % 256, std::uintptr_t{0});
  }
  wait(stream);
}

// CUDA Runtime API, cudaFree: of a null pointer, no operation is performed.
PROBE(free_of_null_does_nothing) {
  OK(cudaFree(nullptr));
  OK(cudaPeekAtLastError());
}

// CUDA Runtime API, cudaFree: an error is returned if the memory was freed before.
PROBE_IN(ends_cusim, second_free_is_an_error) {
  void* one = nullptr;
  OK(cudaMalloc(&one, 1000));
  OK(cudaFree(one));
  expect("the second free is refused", cudaFree(one) != cudaSuccess);
}

// CUDA Runtime API, cudaMalloc: returns cudaErrorMemoryAllocation in case of failure, which later calls do not repeat.
PROBE(malloc_of_too_much_fails_alone) {
  void* made = nullptr;
  expect("an allocation of 2^50 bytes is", cudaMalloc(&made, std::size_t{1} << 50), cudaErrorMemoryAllocation);
  (void)cudaGetLastError();
  const Array<int> other{{5}};
  expect("memory holds", other.values()[0], 5);
}
PROBE(malloc_async_of_too_much_fails_alone) {
  const Stream stream;
  void* made = nullptr;
  expect("an allocation of 2^50 bytes is", cudaMallocAsync(&made, std::size_t{1} << 50, stream),
         cudaErrorMemoryAllocation);
  (void)cudaGetLastError();
  OK(cudaFreeAsync(allocate_async(1, stream), stream));
  wait(stream);
}

// CUDA Runtime API, cudaMalloc: no error is named for a size of zero. Whatever pointer it gives can be freed.
PROBE(malloc_of_zero_can_be_freed) {
  void* made = &made;
  OK(cudaMalloc(&made, 0));
  OK(cudaFree(made));
}

// CUDA Runtime API, cudaMemcpyAsync and cudaMemsetAsync: they touch `count` bytes, so none if that is zero.
PROBE(copies_of_zero_bytes_do_nothing) {
  const Stream stream;
  const Array<int> at{{7}};
  int host = 3;
  OK(cudaMemcpyAsync(at.data(), &host, 0, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(&host, at.data(), 0, cudaMemcpyDeviceToHost, stream));
  OK(cudaMemsetAsync(at.data(), 1, 0, stream));
  wait(stream);
  expect("GPU memory holds", at.values()[0], 7);
  expect("the host's memory holds", host, 3);
}

// CUDA Runtime API, cudaMemset: fills the first `count` bytes with the constant byte value.
PROBE(memset_sets_bytes) {
  const Array<unsigned> at{{1, 2, 3}};
  OK(cudaMemset(at.data(), 0x1ab, 6));
  wait(cudaStream_t{nullptr});
  expect_all("memory", at.values(), {0xabababab, 0x0000abab, 3});
}

// CUDA Runtime API, API synchronization behavior: a copy from pageable memory is staged before the call returns, so the
// source may be overwritten.
PROBE(source_in_pageable_memory_may_be_overwritten) {
  const Stream stream;
  const Array<int> at(1000);
  std::vector<int> source(1000, 1);
  OK(cudaMemcpyAsync(at.data(), source.data(), at.bytes(), cudaMemcpyHostToDevice, stream));
  std::fill(source.begin(), source.end(), 2);
  wait(stream);
  expect_all("the copy", at.values(), std::vector<int>(1000, 1));
}

// CUDA Runtime API, API synchronization behavior: a copy from GPU memory to pageable memory returns only once it is
// done.
PROBE(copy_to_pageable_memory_is_done_at_return) {
  const Stream stream;
  const Array<int> at(1000);
  std::vector<int> got(1000, 0);
  OK(launch_fill(at.data(), 1000, 5, stream));
  OK(cudaMemcpyAsync(got.data(), at.data(), at.bytes(), cudaMemcpyDeviceToHost, stream));
  expect_all("the copy", got, std::vector<int>(1000, 5));
}

// CUDA Runtime API, API synchronization behavior: a copy from pinned memory is asynchronous: it reads in the stream's
// order, not in the call.
PROBE(source_in_pinned_memory_is_read_in_order) {
  const Stream stream;
  const Array<int> at{{0}};
  const Pinned<int> source{1};
  Gate gate{stream};
  source[0] = 1;
  OK(cudaMemcpyAsync(at.data(), source.data(), sizeof(int), cudaMemcpyHostToDevice, stream));
  source[0] = 2;
  gate.open();
  wait(stream);
  expect("the copy brings", at.values()[0], 2);
}
PROBE(copy_to_pinned_memory_comes_in_order) {
  const Stream stream;
  const Array<int> at{{6}};
  const Pinned<int> to{1};
  Gate gate{stream};
  OK(cudaMemcpyAsync(to.data(), at.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  expect("before the stream gets there, memory holds", to[0], 0);
  gate.open();
  wait(stream);
  expect("memory then holds", to[0], 6);
}

// CUDA Runtime API, API synchronization behavior: cudaMemcpy from GPU memory returns once the copy is done, after all
// earlier work of the default stream.
PROBE(memcpy_waits_for_the_default_stream) {
  const Array<int> at{{0}};
  OK(launch_fill(at.data(), 1, 12, nullptr));
  int got = 0;
  OK(cudaMemcpy(&got, at.data(), sizeof got, cudaMemcpyDeviceToHost));
  expect("the copy brings", got, 12);
}

// CUDA Runtime API, cudaMemcpy: cudaMemcpyDefault infers the direction from the pointers.
PROBE(memcpy_default_infers_the_direction) {
  const Array<int> a{{0}};
  const Array<int> b{{0}};
  const int source = 31;
  int got = 0;
  OK(cudaMemcpy(a.data(), &source, sizeof source, cudaMemcpyDefault));
  OK(cudaMemcpy(b.data(), a.data(), sizeof source, cudaMemcpyDefault));
  OK(cudaMemcpy(&got, b.data(), sizeof got, cudaMemcpyDefault));
  expect("three copies bring", got, source);
}

// CUDA Runtime API, cudaMemcpy: returns cudaErrorInvalidMemcpyDirection for what is no direction.
PROBE(memcpy_refuses_unknown_directions) {
  const Array<int> at{{0}};
  int value = 0;
  expect("a copy of kind 7 is", cudaMemcpy(at.data(), &value, sizeof value, static_cast<cudaMemcpyKind>(7)),
         cudaErrorInvalidMemcpyDirection);
}

// CUDA Runtime API, cudaMallocAsync and cudaFreeAsync: memory may be used in the stream's order after the allocation
// and before the free; what reuses it comes after the free.
PROBE(malloc_async_reuses_in_order) {
  const Stream stream;
  const Array<int> results{std::vector<int>(20, 0)};
  for (int i = 0; i < 20; ++i) {
    int* const made = allocate_async(1000, stream);
    OK(launch_fill(made, 1000, i, stream));
    OK(launch_copy(made + 999, results.data() + i, stream));
    OK(cudaFreeAsync(made, stream));
  }
  wait(stream);
  std::vector<int> expected(20);
  for (int i = 0; i < 20; ++i) expected[static_cast<std::size_t>(i)] = i;
  expect_all("what was in the memory", results.values(), expected);
}

// CUDA C++ Programming Guide, Stream Ordered Memory Allocator: another stream may use the memory if an event orders it
// after the allocation, and free it.
PROBE(malloc_async_serves_other_streams_after_an_event) {
  const Stream one;
  const Stream two;
  const Event made;
  const Array<int> result{{0}};
  int* const memory = allocate_async(1, one);
  OK(cudaEventRecord(made, one));
  OK(cudaStreamWaitEvent(two, made));
  OK(launch_fill(memory, 1, 3, two));
  OK(launch_copy(memory, result.data(), two));
  OK(cudaFreeAsync(memory, two));
  wait(two);
  expect("the memory held", result.values()[0], 3);
}

// CUDA Runtime API, cudaMallocAsync: returns at once; the allocation is made in the stream's order.
PROBE(malloc_async_does_not_wait) {
  const Stream stream;
  const Array<int> result{{0}};
  OK(cudaFreeAsync(allocate_async(1, stream), stream));
  wait(stream);
  Gate gate{stream};
  int* const memory = allocate_async(1, stream);
  OK(launch_fill(memory, 1, 4, stream));
  OK(launch_copy(memory, result.data(), stream));
  OK(cudaFreeAsync(memory, stream));
  expect_waits("the stream answers", stream);
  gate.open();
  wait(stream);
  expect("the memory held", result.values()[0], 4);
}

// CUDA C++ Programming Guide, Stream Ordered Memory Allocator: cudaFree may free memory of cudaMallocAsync, and
// cudaFreeAsync memory of cudaMalloc.
PROBE(free_takes_memory_of_malloc_async) {
  const Stream stream;
  int* const memory = allocate_async(1, stream);
  OK(launch_fill(memory, 1, 4, stream));
  wait(stream);
  OK(cudaFree(memory));
}
PROBE(free_async_takes_memory_of_malloc) {
  const Stream stream;
  int* memory = nullptr;
  OK(cudaMalloc(reinterpret_cast<void**>(&memory), sizeof(int)));
  OK(launch_fill(memory, 1, 4, stream));
  OK(cudaFreeAsync(memory, stream));
  wait(stream);
}

// CUDA Runtime API, cudaMemPoolAttr: UsedMemCurrent is what the application has allocated from the pool.
PROBE(pool_counts_what_is_used) {
  const Stream stream;
  wait(stream);
  const cudaMemPool_t pool = default_pool();
  const std::uint64_t before = attribute(pool, cudaMemPoolAttrUsedMemCurrent);
  char* const memory = allocate_async<char>(1 << 20, stream);
  wait(stream);
  const std::uint64_t between = attribute(pool, cudaMemPoolAttrUsedMemCurrent);
  OK(cudaFreeAsync(memory, stream));
  wait(stream);
  const std::uint64_t after = attribute(pool, cudaMemPoolAttrUsedMemCurrent);
  expect("an allocation of 2^20 bytes counts so many at least", between - before >= 1 << 20);
  expect("after the free, so many are used:", after, before);
}

// CUDA Runtime API, cudaMemPoolAttr: UsedMemHigh and ReservedMemHigh are high watermarks; what is used is reserved.
PROBE(pool_has_high_watermarks) {
  const Stream stream;
  const cudaMemPool_t pool = default_pool();
  OK(cudaFreeAsync(allocate_async<char>(1 << 22, stream), stream));
  wait(stream);
  expect("the most ever used is at least 2^22", attribute(pool, cudaMemPoolAttrUsedMemHigh) >= 1 << 22);
  expect("what is reserved is not less than what is used",
         attribute(pool, cudaMemPoolAttrReservedMemCurrent) >= attribute(pool, cudaMemPoolAttrUsedMemCurrent));
  expect("the most reserved is not less than the most used",
         attribute(pool, cudaMemPoolAttrReservedMemHigh) >= attribute(pool, cudaMemPoolAttrUsedMemHigh));
}

// CUDA Runtime API, cudaMemPoolAttr: the high watermarks can be reset to 0 and to nothing else.
PROBE(pool_watermarks_can_be_reset) {
  const Stream stream;
  const cudaMemPool_t pool = default_pool();
  OK(cudaFreeAsync(allocate_async<char>(1 << 24, stream), stream));
  wait(stream);
  std::uint64_t value = 1;
  expect("a watermark of 1 is refused",
         cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value) != cudaSuccess);
  value = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value));
  expect("the most used is below 2^24", attribute(pool, cudaMemPoolAttrUsedMemHigh) < 1 << 24);
}

// CUDA Runtime API, cudaMemPoolAttr: what allows memory to be reused across streams is on at first.
PROBE(pool_reuses_at_first) {
  for (const auto which : {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic,
                           cudaMemPoolReuseAllowInternalDependencies}) {
    int value = -1;
    OK(cudaMemPoolGetAttribute(default_pool(), which, &value));
    expect("the attribute is", value, 1);
  }
}

// CUDA Runtime API, cudaMemPoolAttr: ReleaseThreshold is 0 at first, and can be set.
PROBE(pool_has_a_release_threshold) {
  const cudaMemPool_t pool = default_pool();
  const std::uint64_t before = attribute(pool, cudaMemPoolAttrReleaseThreshold);
  std::uint64_t value = std::uint64_t{1} << 30;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
  const std::uint64_t after = attribute(pool, cudaMemPoolAttrReleaseThreshold);
  value = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
  expect("at first, the threshold is", before, std::uint64_t{0});
  expect("once set, it is", after, std::uint64_t{1} << 30);
}

// CUDA Runtime API, cudaDeviceGetMemPool: a device's current pool is its default pool unless another was set.
PROBE(pool_of_device_is_its_default) {
  cudaMemPool_t current = nullptr;
  OK(cudaDeviceGetMemPool(&current, 0));
  expect("the current pool is the default", current == default_pool());
  OK(cudaMemPoolTrimTo(current, 0));
}

// CUDA Runtime API, cudaPointerGetAttributes: type, device and pointers of memory, also within an allocation.
PROBE(pointer_attributes_of_gpu_memory) {
  const Array<int> at{{1, 2, 3}};
  for (int* const pointer : {at.data(), at.data() + 2}) {
    cudaPointerAttributes attributes{};
    OK(cudaPointerGetAttributes(&attributes, pointer));
    expect("the type is", int{attributes.type}, int{cudaMemoryTypeDevice});
    expect("the device is", attributes.device, 0);
    expect("the device's pointer is the pointer", attributes.devicePointer == pointer);
    expect("the host's pointer is null", attributes.hostPointer == nullptr);
  }
}
PROBE(pointer_attributes_of_pinned_memory) {
  const Pinned<int> at{3};
  cudaPointerAttributes attributes{};
  OK(cudaPointerGetAttributes(&attributes, at.data() + 1));
  expect("the type is", int{attributes.type}, int{cudaMemoryTypeHost});
  expect("the host's pointer is the pointer", attributes.hostPointer == at.data() + 1);
  expect("there is a device's pointer", attributes.devicePointer != nullptr);
}

// CUDA Runtime API, cudaPointerGetAttributes: memory that CUDA does not know is cudaMemoryTypeUnregistered, and no
// error.
PROBE(pointer_attributes_of_pageable_memory) {
  const std::vector<int> memory(100);
  cudaPointerAttributes attributes{};
  attributes.type = cudaMemoryTypeDevice;
  OK(cudaPointerGetAttributes(&attributes, memory.data()));
  expect("the type is", int{attributes.type}, int{cudaMemoryTypeUnregistered});
  OK(cudaPeekAtLastError());
}

// CUDA Runtime API, cudaHostRegister and cudaHostUnregister: they make the host's memory pinned, and pageable again.
PROBE(host_register_pins_memory) {
  std::vector<int> memory(100000, 4);
  cudaPointerAttributes attributes{};
  OK(cudaHostRegister(memory.data(), memory.size() * sizeof(int), cudaHostRegisterDefault));
  const cudaError_t asked = cudaPointerGetAttributes(&attributes, memory.data());
  const int registered = attributes.type;
  const cudaError_t again = cudaHostRegister(memory.data(), memory.size() * sizeof(int), cudaHostRegisterDefault);
  OK(cudaHostUnregister(memory.data()));
  OK(asked);
  expect("the type is", registered, int{cudaMemoryTypeHost});
  expect("a second registration is", again, cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaPointerGetAttributes(&attributes, memory.data()));
  expect("the type is then", int{attributes.type}, int{cudaMemoryTypeUnregistered});
  expect("a second end is", cudaHostUnregister(memory.data()), cudaErrorHostMemoryNotRegistered);
}

// CUDA C++ Programming Guide, Unified virtual address space: kernels may use the host's pointer to memory of
// cudaHostAlloc.
PROBE(kernels_use_pinned_memory) {
  const Stream stream;
  const Pinned<int> at{2};
  at[0] = 17;
  void* device = nullptr;
  OK(cudaHostGetDevicePointer(&device, at.data(), 0));
  expect("both pointers are the same", device == at.data());
  OK(launch_copy(at.data(), at.data() + 1, stream));
  wait(stream);
  expect("the kernel writes", at[1], 17);
}

// CUDA Runtime API, cudaMemGetInfo: free and total memory.
PROBE(memory_info_has_free_and_total) {
  std::size_t unused = 0;
  std::size_t total = 0;
  OK(cudaMemGetInfo(&unused, &total));
  expect("free memory is not more than all", unused > 0 && unused <= total);
}
