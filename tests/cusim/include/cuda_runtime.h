// What .cu files use beside the host's API: CUDA's words for functions, built-in variables, and the functions that
// only kernels call. A kernel is a plain function here; libcudart.so.13 calls it once for each thread, on a fiber.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>

#include "cusim_device.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

// Constant for a thread, so the compiler may keep them, and accesses to them are not checked. That takes a type without
// constructor, unlike dim3.
extern const __thread uint3 threadIdx __asm__("cusim_thread_index");
extern const __thread uint3 blockIdx __asm__("cusim_block_index");
extern const __thread uint3 blockDim __asm__("cusim_block_size");
extern const __thread uint3 gridDim __asm__("cusim_grid_size");
inline constexpr int warpSize = 32;

// --- Launches ---

/// Enqueues a launch with copies of the arguments.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "CUDA copies the bytes of a kernel's parameters");
  using Copies = std::tuple<Parameters...>;
  const Copies copies{static_cast<Parameters>(std::forward<Arguments>(arguments))...};
  const cusim::device::Call call = [](const void* function, const void* parameters) {
    std::apply(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(function)),
               *static_cast<const Copies*>(parameters));
  };
  return cusim::device::launch(*config, reinterpret_cast<const void*>(kernel), call, &copies, sizeof copies);
}

// --- Barriers and fences ---

// The place of the call, in default arguments.
#define CUSIM_PLACE const char *cusim_file = __builtin_FILE(), unsigned cusim_line = __builtin_LINE()
#define CUSIM_HERE         \
  cusim::device::Place {   \
    cusim_file, cusim_line \
  }

inline void __syncthreads(CUSIM_PLACE) {
  cusim::device::barrier(CUSIM_HERE);
}
inline void __syncwarp(unsigned mask = 0xffffffff, CUSIM_PLACE) {
  cusim::device::warp_barrier(mask, CUSIM_HERE);
}

// Fences order the accesses of one thread, which are in order here.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// --- Functions of a warp ---

namespace cusim::device {

template <class T>
concept Shuffled = std::is_trivially_copyable_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);

template <Shuffled T>
T shuffled(unsigned mask, T value, Shuffle kind, unsigned operand, int width, Place place) {
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = shuffle(mask, bits, kind, operand, width, place);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace cusim::device

template <cusim::device::Shuffled T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize, CUSIM_PLACE) {
  return cusim::device::shuffled(mask, value, cusim::device::Shuffle::index, static_cast<unsigned>(lane), width,
                                 CUSIM_HERE);
}
template <cusim::device::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = warpSize, CUSIM_PLACE) {
  return cusim::device::shuffled(mask, value, cusim::device::Shuffle::up, distance, width, CUSIM_HERE);
}
template <cusim::device::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = warpSize, CUSIM_PLACE) {
  return cusim::device::shuffled(mask, value, cusim::device::Shuffle::down, distance, width, CUSIM_HERE);
}
template <cusim::device::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize, CUSIM_PLACE) {
  return cusim::device::shuffled(mask, value, cusim::device::Shuffle::exclusive_or, static_cast<unsigned>(bits), width,
                                 CUSIM_HERE);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, CUSIM_PLACE) {
  return cusim::device::ballot(mask, predicate != 0, CUSIM_HERE);
}
inline int __any_sync(unsigned mask, int predicate, CUSIM_PLACE) {
  return cusim::device::ballot(mask, predicate != 0, CUSIM_HERE) != 0;
}
inline int __all_sync(unsigned mask, int predicate, CUSIM_PLACE) {
  return cusim::device::ballot(mask, predicate == 0, CUSIM_HERE) == 0;
}
inline unsigned __activemask() {
  return cusim::device::active_mask();
}

#undef CUSIM_PLACE
#undef CUSIM_HERE

// --- Atomic operations, on integers alone ---

namespace cusim::device {

template <class T>
concept AtomicInteger = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

/// Replaces *address by made(*address), and returns what was there.
template <AtomicInteger T, class Made>
[[gnu::no_sanitize_thread]] T replaced(T* address, Made made) {
  atomic(address, sizeof(T));
  const T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  __atomic_store_n(address, made(old), __ATOMIC_RELAXED);
  return old;
}

}  // namespace cusim::device

template <cusim::device::AtomicInteger T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  using U = std::make_unsigned_t<T>;  // wraps around
  return cusim::device::replaced(
      address, [value](T old) { return static_cast<T>(static_cast<U>(old) + static_cast<U>(value)); });
}
template <cusim::device::AtomicInteger T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return cusim::device::replaced(address, [value](T old) { return old < value ? value : old; });
}
template <cusim::device::AtomicInteger T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return cusim::device::replaced(address, [value](T old) { return value < old ? value : old; });
}
template <cusim::device::AtomicInteger T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return cusim::device::replaced(address, [value](T) { return value; });
}
template <cusim::device::AtomicInteger T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return cusim::device::replaced(address, [expected, value](T old) { return old == expected ? value : old; });
}
inline float atomicAdd(float*, float) {
  cusim::device::refuse_float_atomic();
}
inline double atomicAdd(double*, double) {
  cusim::device::refuse_float_atomic();
}

// --- Loads and arithmetic ---

/// The position of the lowest bit that is set, from 1; 0 if none is.
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
template <class T>
T __ldg(const T* address) {
  return *address;
}
inline float rsqrtf(float x) {
  return 1 / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1 / std::sqrt(x);
}
// The real one is less exact. No test may depend on its bits.
inline float __expf(float x) {
  return std::exp(x);
}
