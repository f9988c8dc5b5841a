#include <cuda_bf16.h>

#include "core/device/cuda/kernel_launch.hpp"
#include "kernels.hpp"

namespace lockstep::probes {
namespace {

using detail::launch;

constexpr unsigned all_lanes = 0xffffffff;
constexpr int block_threads = 128;

__device__ int index() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void empty() {}

template <class T>
__global__ void fill(T* to, int count, T value) {
  if (index() < count) to[index()] = value;
}

__global__ void append(int* at, int added) {
  at[0] = 2 * at[0] + added;
}

__global__ void copy_one(const int* from, int* to) {
  to[0] = from[0];
}

__global__ void write_int(int* address) {
  *address = 1;
}

__global__ void count_up(int* values, int count) {
  for (int i = index(); i < count; i += static_cast<int>(gridDim.x * blockDim.x)) values[i] += 1;
}

__global__ void places(int* to) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned place = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
  to[place] = static_cast<int>(place);
}

__global__ void shuffle(int* to, Exchange exchange, int operand, int width) {
  const int lane = static_cast<int>(threadIdx.x);
  int got = 0;
  if (exchange == Exchange::index) got = __shfl_sync(all_lanes, 100 + lane, operand, width);
  if (exchange == Exchange::up) got = __shfl_up_sync(all_lanes, 100 + lane, static_cast<unsigned>(operand), width);
  if (exchange == Exchange::down) got = __shfl_down_sync(all_lanes, 100 + lane, static_cast<unsigned>(operand), width);
  if (exchange == Exchange::exclusive_or) got = __shfl_xor_sync(all_lanes, 100 + lane, operand, width);
  to[lane] = got;
}

__global__ void vote_of_some(unsigned* to, unsigned mask) {
  const unsigned lane = threadIdx.x;
  unsigned votes = 0;
  if (mask >> lane & 1) votes = __ballot_sync(mask, static_cast<int>(lane % 2));
  to[lane] = votes;
}

__global__ void any_and_all(int* to, int any_of, int all_of) {
  const int lane = static_cast<int>(threadIdx.x);
  const int any = __any_sync(all_lanes, lane == any_of);
  const int all = __all_sync(all_lanes, lane < all_of);
  to[lane] = 2 * (any != 0 ? 1 : 0) + (all != 0 ? 1 : 0);
}

__global__ void reverse(const int* from, int* to) {
  __shared__ int kept[block_threads];
  kept[threadIdx.x] = from[index()];
  __syncthreads();
  to[index()] = kept[block_threads - 1 - threadIdx.x];
}

__global__ void hand_around(int* to) {
  __shared__ int kept[32];
  const unsigned lane = threadIdx.x;
  int mine = static_cast<int>(lane);
  for (int round = 0; round < 5; ++round) {
    kept[lane] = mine;
    __syncwarp();
    mine = kept[(lane + 1) % 32];
    __syncwarp();
  }
  to[lane] = mine;
}

__global__ void warp_sum(int* to) {
  int sum = static_cast<int>(threadIdx.x);
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(all_lanes, sum, bits);
  to[threadIdx.x] = sum;
}

__global__ void atomics(int* counters) {
  atomicAdd(&counters[0], 1);
  atomicMax(&counters[1], index());
  atomicMin(&counters[2], index());
  int seen = 0;
  for (;;) {
    const int old = atomicCAS(&counters[3], seen, seen + 1);
    if (old == seen) break;
    seen = old;
  }
}

template <class T>
__global__ void multiply_add(const T* a, const T* b, const T* c, T* to, int count) {
  if (index() < count) to[index()] = a[index()] * b[index()] + c[index()];
}

template <class T>
__global__ void divide(const T* a, const T* b, T* to, int count) {
  if (index() < count) to[index()] = a[index()] / b[index()];
}

__device__ float value_of(Function function, float x) {
  switch (function) {
    case Function::square_root: return sqrtf(x);
    case Function::exponential: return expf(x);
    case Function::logarithm: return logf(x);
    case Function::hyperbolic_tangent: return tanhf(x);
    case Function::larger_than_one: return fmaxf(x, 1.0f);
    case Function::smaller_than_one: return fminf(x, 1.0f);
  }
  return 0;
}

__device__ double value_of(Function function, double x) {
  switch (function) {
    case Function::square_root: return sqrt(x);
    case Function::exponential: return exp(x);
    case Function::logarithm: return log(x);
    case Function::hyperbolic_tangent: return tanh(x);
    case Function::larger_than_one: return fmax(x, 1.0);
    case Function::smaller_than_one: return fmin(x, 1.0);
  }
  return 0;
}

template <class T>
__global__ void evaluate(Function function, const T* from, T* to, int count) {
  if (index() < count) to[index()] = value_of(function, from[index()]);
}

__global__ void to_bf16(const float* from, std::uint16_t* to, int count) {
  if (index() < count) to[index()] = __bfloat16_as_ushort(__float2bfloat16_rn(from[index()]));
}

__global__ void from_bf16(const std::uint16_t* from, float* to, int count) {
  if (index() < count) to[index()] = __bfloat162float(__ushort_as_bfloat16(from[index()]));
}

template <class From, class To>
__global__ void convert(const From* from, To* to, int count) {
  if (index() < count) to[index()] = static_cast<To>(from[index()]);
}

__global__ void integers(const int* a, const int* b, int* to, int count) {
  if (index() >= count) return;
  const int x = a[index()];
  const int y = b[index()];
  int* const mine = to + 4 * index();
  mine[0] = x / y;
  mine[1] = x % y;
  mine[2] = x >> 3;
  mine[3] = static_cast<int>(static_cast<unsigned>(x) + 0x7fffffffu);
}

/// One thread for each element.
template <class... Parameters, class... Arguments>
cudaError_t launch_each(void (*kernel)(Parameters...), int count, cudaStream_t stream, Arguments... arguments) {
  const int blocks = (count + block_threads - 1) / block_threads;
  return launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(block_threads), stream, arguments...);
}

}  // namespace

cudaError_t launch_empty(dim3 blocks, dim3 threads, cudaStream_t stream) {
  return launch(empty, blocks, threads, stream);
}

cudaError_t launch_fill(int* to, int count, int value, cudaStream_t stream) {
  return launch_each(fill<int>, count, stream, to, count, value);
}
cudaError_t launch_fill(float* to, int count, float value, cudaStream_t stream) {
  return launch_each(fill<float>, count, stream, to, count, value);
}

cudaError_t launch_append(int* at, int added, cudaStream_t stream) {
  return launch(append, dim3(1), dim3(1), stream, at, added);
}

cudaError_t launch_copy(const int* from, int* to, cudaStream_t stream) {
  return launch(copy_one, dim3(1), dim3(1), stream, from, to);
}

cudaError_t launch_write(void* address, cudaStream_t stream) {
  return launch(write_int, dim3(1), dim3(1), stream, static_cast<int*>(address));
}

cudaError_t launch_count_up(int* values, int count, dim3 blocks, dim3 threads, cudaStream_t stream) {
  return launch(count_up, blocks, threads, stream, values, count);
}

cudaError_t launch_places(int* to, dim3 blocks, dim3 threads, cudaStream_t stream) {
  return launch(places, blocks, threads, stream, to);
}

cudaError_t launch_shuffle(int* to, Exchange exchange, int operand, int width, cudaStream_t stream) {
  return launch(shuffle, dim3(1), dim3(32), stream, to, exchange, operand, width);
}

cudaError_t launch_ballot(unsigned* to, unsigned mask, cudaStream_t stream) {
  return launch(vote_of_some, dim3(1), dim3(32), stream, to, mask);
}

cudaError_t launch_votes(int* to, int any_of, int all_of, cudaStream_t stream) {
  return launch(any_and_all, dim3(1), dim3(32), stream, to, any_of, all_of);
}

cudaError_t launch_reverse(const int* from, int* to, int blocks, cudaStream_t stream) {
  return launch(reverse, dim3(static_cast<unsigned>(blocks)), dim3(block_threads), stream, from, to);
}

cudaError_t launch_hand_around(int* to, cudaStream_t stream) {
  return launch(hand_around, dim3(1), dim3(32), stream, to);
}

cudaError_t launch_warp_sum(int* to, cudaStream_t stream) {
  return launch(warp_sum, dim3(1), dim3(32), stream, to);
}

cudaError_t launch_atomics(int* counters, int blocks, int threads, cudaStream_t stream) {
  return launch(atomics, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), stream, counters);
}

cudaError_t launch_multiply_add(const float* a, const float* b, const float* c, float* to, int count,
                                cudaStream_t stream) {
  return launch_each(multiply_add<float>, count, stream, a, b, c, to, count);
}
cudaError_t launch_multiply_add(const double* a, const double* b, const double* c, double* to, int count,
                                cudaStream_t stream) {
  return launch_each(multiply_add<double>, count, stream, a, b, c, to, count);
}

cudaError_t launch_divide(const float* a, const float* b, float* to, int count, cudaStream_t stream) {
  return launch_each(divide<float>, count, stream, a, b, to, count);
}
cudaError_t launch_divide(const double* a, const double* b, double* to, int count, cudaStream_t stream) {
  return launch_each(divide<double>, count, stream, a, b, to, count);
}

cudaError_t launch_function(Function function, const float* from, float* to, int count, cudaStream_t stream) {
  return launch_each(evaluate<float>, count, stream, function, from, to, count);
}
cudaError_t launch_function(Function function, const double* from, double* to, int count, cudaStream_t stream) {
  return launch_each(evaluate<double>, count, stream, function, from, to, count);
}

cudaError_t launch_to_bf16(const float* from, std::uint16_t* to, int count, cudaStream_t stream) {
  return launch_each(to_bf16, count, stream, from, to, count);
}
cudaError_t launch_from_bf16(const std::uint16_t* from, float* to, int count, cudaStream_t stream) {
  return launch_each(from_bf16, count, stream, from, to, count);
}
cudaError_t launch_to_int(const float* from, int* to, int count, cudaStream_t stream) {
  return launch_each(convert<float, int>, count, stream, from, to, count);
}
cudaError_t launch_from_int(const int* from, float* to, int count, cudaStream_t stream) {
  return launch_each(convert<int, float>, count, stream, from, to, count);
}
cudaError_t launch_narrow(const double* from, float* to, int count, cudaStream_t stream) {
  return launch_each(convert<double, float>, count, stream, from, to, count);
}

cudaError_t launch_integers(const int* a, const int* b, int* to, int count, cudaStream_t stream) {
  return launch_each(integers, count, stream, a, b, to, count);
}

}  // namespace lockstep::probes
