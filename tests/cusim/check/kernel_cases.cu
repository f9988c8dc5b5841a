// Each wrong kernel is wrong in one way. Its neighbour is right.
#include <utility>

#include <cuda_runtime.h>

#include "kernel_cases.hpp"

namespace cusim::test {
namespace {

constexpr int count = CaseMemory::count;
constexpr unsigned all_lanes = 0xffffffff;
constexpr int threads = 128;

template <class... Parameters, class... Arguments>
cudaError_t launch(unsigned blocks, unsigned block_threads, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t shape{};
  shape.gridDim = dim3{blocks};
  shape.blockDim = dim3{block_threads};
  return cudaLaunchKernelEx(&shape, kernel, arguments...);
}

__device__ int global_index() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

// --- Bounds, freed memory, initialised bytes, alignment ---

__global__ void copy_to(const int* from, int* to, int offset) {
  to[global_index() + offset] = from[global_index()];
}
__global__ void copy_from(const int* from, int* to, int offset) {
  to[global_index()] = from[global_index() + offset];
}
__global__ void copy_longs(const char* from, int* to) {
  const long long two = *reinterpret_cast<const long long*>(from + 8 * global_index());
  to[global_index()] = static_cast<int>(two);
}
__global__ void copy_bytes(const char* from, char* to, int bytes) {
  for (int i = global_index(); i < bytes; i += static_cast<int>(gridDim.x * blockDim.x)) to[i] = from[i];
}
__global__ void copy_at_once(const int* from, int* to, int ints) {
  if (global_index() == 0) memcpy(to, from, static_cast<std::size_t>(ints) * sizeof(int));
}

const int constants[4] = {1, 2, 3, 4};
volatile int global_of_host = 0;

__global__ void read_constants(int* to) {
  to[global_index()] = constants[threadIdx.x % 4];
}
__global__ void write_to(const int* constant) {
  if (threadIdx.x == 3) const_cast<int*>(constant)[2] = 5;
}
__global__ void write_global() {
  if (threadIdx.x == 3) global_of_host = 5;
}

// --- Shared memory ---

__global__ void shared_reverse(const int* from, int* to, int barriers, int written, int offset) {
  __shared__ int kept[threads];
  __shared__ int guard[threads];
  const int mine = static_cast<int>(threadIdx.x);
  guard[mine] = 0;
  if (mine < written) kept[mine] = from[global_index()];
  if (barriers) __syncthreads();
  to[global_index()] = kept[threads - 1 - mine + offset] + guard[mine];
}
/// A tree; with `last_barrier` 0 the next round may overwrite what the last thread has not read.
__global__ void shared_sums(const int* from, int* to, int rounds, int last_barrier) {
  __shared__ int sums[threads];
  const int mine = static_cast<int>(threadIdx.x);
  for (int round = 0; round < rounds; ++round) {
    sums[mine] = from[round * threads + mine];
    __syncthreads();
    for (int width = threads / 2; width > 0; width /= 2) {
      if (mine < width) sums[mine] += sums[mine + width];
      __syncthreads();
    }
    if (mine == threads - 1) to[round] = sums[0];
    if (last_barrier) __syncthreads();
  }
}

// --- Races in device memory ---

__global__ void neighbours(int* values, int barrier) {
  const int mine = static_cast<int>(threadIdx.x);
  values[mine] = mine;
  if (barrier) __syncthreads();
  const int next = values[(mine + 1) % threads];
  if (barrier) __syncthreads();
  values[mine] = next;
}
/// Each block writes a part of `part` ints. Correct only if `part` is the number of threads in a block.
__global__ void parts_of_blocks(int* to, int part) {
  to[static_cast<int>(blockIdx.x) * part + static_cast<int>(threadIdx.x)] = 1;
}
__global__ void first_to_all(int* values, int writer) {
  const int first = values[0];
  if (global_index() == writer)
    values[0] = first + 1;
  else
    values[1 + global_index()] = first;
}
__global__ void bytes_of_one_word(char* to, int stride) {
  to[global_index() / stride] = 1;
}
__global__ void count_up(int* counter, int atomic) {
  if (atomic)
    atomicAdd(counter, 1);
  else
    *counter += 1;
}
__global__ void count_and_look(int* counter, int* to) {
  atomicAdd(counter, 1);
  to[global_index()] = *counter;
}
__global__ void count_floats(float* sum) {
  atomicAdd(sum, 1.0f);
}

// --- Warps ---

__global__ void warp_overwrites(int* values, int barrier) {
  const int first = values[0];
  if (barrier) __syncwarp();
  values[threadIdx.x] = first + static_cast<int>(threadIdx.x);
}
/// The lower lanes synchronize by themselves, and all of them at last.
__global__ void half_warp_overwrites(int* values, unsigned mask) {
  if (threadIdx.x >= 16) return;
  const int first = values[0];
  __syncwarp(mask & 0xffff);
  const int again = values[0];
  __syncwarp(mask);
  values[threadIdx.x] = first + again;
}
__global__ void two_masks(int* values) {
  const unsigned mask = threadIdx.x < 16 ? 0xffff : 0xffff0000;
  const int first = values[threadIdx.x / 16];
  __syncwarp(mask);
  if (threadIdx.x % 16 == 1) values[threadIdx.x / 16] = first + 1;
}
__global__ void shuffle_up(int* to, unsigned mask, int active) {
  const int mine = static_cast<int>(threadIdx.x);
  if (mine >= active) return;
  to[mine] = __shfl_xor_sync(mask, mine, 1);
}
__global__ void shuffle_from(int* to, unsigned mask, int lane) {
  const int mine = static_cast<int>(threadIdx.x);
  if (!(mask >> mine & 1)) return;
  to[mine] = __shfl_sync(mask, mine, lane);
}
__global__ void shuffle_orders_nothing(int* values) {
  const int mine = static_cast<int>(threadIdx.x);
  values[mine] = mine;
  const int next = __shfl_sync(all_lanes, mine, (mine + 1) % 32);
  values[mine] = values[next];
}
__global__ void vote_or_shuffle(int* to, int voters) {
  const int mine = static_cast<int>(threadIdx.x);
  to[mine] = mine < voters ? __any_sync(all_lanes, mine) : __shfl_sync(all_lanes, mine, 0);
}
/// Lanes 0 and 1, 1 and 2, 2 and 0 synchronize, each lane with the one after it first.
__global__ void wait_crosswise() {
  constexpr unsigned with_next[] = {0x3, 0x6, 0x5};
  __syncwarp(with_next[threadIdx.x]);
  __syncwarp(with_next[(threadIdx.x + 2) % 3]);
}
__global__ void sum_of_lanes(int* to) {
  int sum = static_cast<int>(threadIdx.x);
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_down_sync(all_lanes, sum, static_cast<unsigned>(distance));
  if (threadIdx.x == 0) to[0] = sum;
}

// --- Barriers ---

__global__ void barrier_for(int some, int leave) {
  if (static_cast<int>(threadIdx.x) < some)
    __syncthreads();
  else if (!leave)
    __syncwarp();
}
__global__ void two_barriers(int some) {
  if (static_cast<int>(threadIdx.x) < some)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void barriers_in_loop(int extra) {
  for (int i = 0; i < 3 + (threadIdx.x == 5 ? extra : 0); ++i) __syncthreads();
}

__global__ void empty() {}

using M = CaseMemory;

const KernelCase all_cases[] = {
    {"copy", [](const M& m) { return launch(32, threads, copy_to, m.full, m.out, 0); }, nullptr},
    {"write one after the end", [](const M& m) { return launch(32, threads, copy_to, m.full, m.out, 1); },
     "writes 4 bytes"},
    {"write one before the begin", [](const M& m) { return launch(32, threads, copy_to, m.full, m.out, -1); },
     "writes 4 bytes"},
    {"read one after the end", [](const M& m) { return launch(32, threads, copy_from, m.full, m.out, 1); },
     "reads 4 bytes"},
    {"read one before the begin", [](const M& m) { return launch(32, threads, copy_from, m.full, m.out, -1); },
     "reads 4 bytes"},
    {"read freed memory", [](const M& m) { return launch(32, threads, copy_from, m.freed, m.out, 0); },
     "reads 4 bytes"},
    {"write freed memory", [](const M& m) { return launch(32, threads, copy_to, m.full, m.freed, 0); },
     "writes 4 bytes"},
    {"read what nobody wrote", [](const M& m) { return launch(32, threads, copy_from, m.empty, m.out, 0); },
     "nobody has written"},
    {"write what nobody wrote", [](const M& m) { return launch(32, threads, copy_to, m.full, m.empty, 0); }, nullptr},
    {"aligned longs", [](const M& m) { return launch(1, 64, copy_longs, reinterpret_cast<char*>(m.full), m.out); },
     nullptr},
    {"misaligned longs",
     [](const M& m) { return launch(1, 64, copy_longs, reinterpret_cast<char*>(m.full) + 4, m.out); },
     "not a multiple of 8"},
    {"bytes",
     [](const M& m) {
       return launch(3, threads, copy_bytes, reinterpret_cast<char*>(m.full), reinterpret_cast<char*>(m.out),
                     4 * count);
     },
     nullptr},
    {"a byte too many",
     [](const M& m) {
       return launch(3, threads, copy_bytes, reinterpret_cast<char*>(m.full), reinterpret_cast<char*>(m.out),
                     4 * count + 1);
     },
     "reads 1 bytes"},
    {"memcpy", [](const M& m) { return launch(1, 32, copy_at_once, m.full, m.out, count); }, nullptr},
    {"memcpy of an int too many", [](const M& m) { return launch(1, 32, copy_at_once, m.full, m.out, count + 1); },
     "reads 16388 bytes"},
    {"a pointer of the host", [](const M& m) { return launch(32, threads, copy_from, m.host, m.out, 0); },
     "the host's memory"},
    {"write by a pointer of the host", [](const M& m) { return launch(32, threads, copy_to, m.full, m.host, 0); },
     "the host's memory"},
    {"pinned memory", [](const M& m) { return launch(32, threads, copy_from, m.pinned, m.out, 0); }, nullptr},
    {"after pinned memory", [](const M& m) { return launch(32, threads, copy_from, m.pinned, m.out, 1); },
     "reads 4 bytes"},
    {"a null pointer", [](const M& m) { return launch(1, threads, copy_from, static_cast<int*>(nullptr), m.out, 0); },
     "null pointer"},
    {"constants", [](const M& m) { return launch(1, threads, read_constants, m.out); }, nullptr},
    {"write a constant", [](const M& m) { return launch(1, threads, write_to, constants); }, "which is constant"},
    {"write a variable of the host", [](const M& m) { return launch(1, threads, write_global); }, "the host's memory"},

    {"shared", [](const M& m) { return launch(4, threads, shared_reverse, m.full, m.out, 1, threads, 0); }, nullptr},
    {"shared without barrier",
     [](const M& m) { return launch(4, threads, shared_reverse, m.full, m.out, 0, threads, 0); }, "shared array"},
    {"shared, one not written",
     [](const M& m) { return launch(4, threads, shared_reverse, m.full, m.out, 1, threads - 1, 0); },
     "no thread of the block has written"},
    {"shared, one after the end",
     [](const M& m) { return launch(4, threads, shared_reverse, m.full, m.out, 1, threads, 1); },
     "byte 512 of the 512"},
    {"shared, one before the begin",
     [](const M& m) { return launch(4, threads, shared_reverse, m.full, m.out, 1, threads, -1); },
     "byte -4 of the 512"},
    {"tree in shared memory", [](const M& m) { return launch(1, threads, shared_sums, m.full, m.out, 8, 1); }, nullptr},
    {"tree without its last barrier", [](const M& m) { return launch(1, threads, shared_sums, m.full, m.out, 8, 0); },
     "no barrier lies between"},

    {"neighbours", [](const M& m) { return launch(1, threads, neighbours, m.out, 1); }, nullptr},
    {"neighbours without barrier", [](const M& m) { return launch(1, threads, neighbours, m.out, 0); },
     "no barrier lies between"},
    {"parts of blocks", [](const M& m) { return launch(16, threads, parts_of_blocks, m.out, threads); }, nullptr},
    {"parts of blocks that overlap",
     [](const M& m) { return launch(16, threads, parts_of_blocks, m.out, threads - 1); }, "nothing orders blocks"},
    {"all read one", [](const M& m) { return launch(4, threads, first_to_all, m.out, -1); }, nullptr},
    {"all read one that the last writes",
     [](const M& m) { return launch(1, threads, first_to_all, m.out, threads - 1); }, "no barrier lies between"},
    {"all read one that a block writes", [](const M& m) { return launch(4, threads, first_to_all, m.out, 300); },
     "nothing orders"},
    {"bytes of a word",
     [](const M& m) { return launch(1, threads, bytes_of_one_word, reinterpret_cast<char*>(m.out), 1); }, nullptr},
    {"two write a byte",
     [](const M& m) { return launch(1, threads, bytes_of_one_word, reinterpret_cast<char*>(m.out), 2); }, "wrote"},
    {"atomic counter", [](const M& m) { return launch(4, threads, count_up, m.out, 1); }, nullptr},
    {"counter", [](const M& m) { return launch(4, threads, count_up, m.out, 0); }, "wrote"},
    {"read of an atomic counter", [](const M& m) { return launch(4, threads, count_and_look, m.out, m.out + 1); },
     "updat"},
    {"float atomics", [](const M& m) { return launch(1, threads, count_floats, reinterpret_cast<float*>(m.out)); },
     "adds a float atomically"},

    {"warp overwrites", [](const M& m) { return launch(1, 32, warp_overwrites, m.out, 1); }, nullptr},
    {"warp overwrites without barrier", [](const M& m) { return launch(1, 32, warp_overwrites, m.out, 0); },
     "no barrier lies between"},
    {"warps overwrite with a warp's barrier", [](const M& m) { return launch(1, 64, warp_overwrites, m.out, 1); },
     "no barrier lies between"},
    {"half a warp", [](const M& m) { return launch(1, 32, half_warp_overwrites, m.out, 0xffffu); }, nullptr},
    {"lane outside of its mask", [](const M& m) { return launch(1, 32, half_warp_overwrites, m.out, 0x7fffu); },
     "lacks its own lane 15"},
    {"two masks", [](const M& m) { return launch(1, 32, two_masks, m.out); }, nullptr},
    {"shuffle", [](const M& m) { return launch(1, 32, shuffle_up, m.out, all_lanes, 32); }, nullptr},
    {"shuffle of some", [](const M& m) { return launch(1, 32, shuffle_up, m.out, 0xffu, 8); }, nullptr},
    {"shuffle from a lane that has ended", [](const M& m) { return launch(1, 32, shuffle_up, m.out, all_lanes, 31); },
     "has ended"},
    {"shuffle in a block of 31", [](const M& m) { return launch(1, 31, shuffle_up, m.out, all_lanes, 32); },
     "does not exist"},
    {"shuffle with too small a mask", [](const M& m) { return launch(1, 32, shuffle_up, m.out, 0xffffu, 32); },
     "lacks its own lane"},
    {"shuffle from a lane of the mask", [](const M& m) { return launch(1, 32, shuffle_from, m.out, 0xffu, 7); },
     nullptr},
    {"shuffle from a lane outside of the mask", [](const M& m) { return launch(1, 32, shuffle_from, m.out, 0xffu, 8); },
     "not in the mask"},
    {"memory after a shuffle", [](const M& m) { return launch(1, 32, shuffle_orders_nothing, m.out); },
     "no barrier lies between"},
    {"votes", [](const M& m) { return launch(1, 32, vote_or_shuffle, m.out, 32); }, nullptr},
    {"votes and shuffles", [](const M& m) { return launch(1, 32, vote_or_shuffle, m.out, 5); }, "of its mask is in"},
    {"crosswise", [](const M& m) { return launch(1, 3, wait_crosswise); }, "waits for ever in __syncwarp"},
    {"sum of lanes", [](const M& m) { return launch(1, 32, sum_of_lanes, m.out); }, nullptr},

    {"barrier", [](const M& m) { return launch(3, threads, barrier_for, threads, 0); }, nullptr},
    {"barrier for some", [](const M& m) { return launch(3, threads, barrier_for, threads - 1, 1); }, "__syncthreads"},
    {"barrier of a block or of a warp", [](const M& m) { return launch(3, threads, barrier_for, threads - 32, 0); },
     "__syncthreads"},
    {"two barriers", [](const M& m) { return launch(1, threads, two_barriers, threads); }, nullptr},
    {"two barriers for some each", [](const M& m) { return launch(1, threads, two_barriers, 1); },
     "wait in another one"},
    {"barriers in a loop", [](const M& m) { return launch(1, threads, barriers_in_loop, 0); }, nullptr},
    {"one more barrier", [](const M& m) { return launch(1, threads, barriers_in_loop, 1); }, "__syncthreads"},
};

}  // namespace

cudaError_t launch_empty(dim3 grid, dim3 block) {
  cudaLaunchConfig_t shape{};
  shape.gridDim = grid;
  shape.blockDim = block;
  return cudaLaunchKernelEx(&shape, empty);
}

cudaError_t launch_copy(const int* from, int* to, cudaStream_t stream) {
  cudaLaunchConfig_t shape{};
  shape.gridDim = dim3{count / threads};
  shape.blockDim = dim3{threads};
  shape.stream = stream;
  return cudaLaunchKernelEx(&shape, copy_to, from, to, 0);
}

std::span<const KernelCase> kernel_cases() {
  return all_cases;
}

}  // namespace cusim::test
