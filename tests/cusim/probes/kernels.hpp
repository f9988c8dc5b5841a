// The kernels of the probes, as functions that launch them. Each returns what the launch did.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace lockstep::probes {

/// A kernel that does nothing.
cudaError_t launch_empty(dim3 blocks, dim3 threads, cudaStream_t stream);

/// to[i] = value.
cudaError_t launch_fill(int* to, int count, int value, cudaStream_t stream);
cudaError_t launch_fill(float* to, int count, float value, cudaStream_t stream);

/// at[0] = 2 * at[0] + added: the result shows the order of several.
cudaError_t launch_append(int* at, int added, cudaStream_t stream);

/// to[0] = from[0].
cudaError_t launch_copy(const int* from, int* to, cudaStream_t stream);

/// Writes an int to any address.
cudaError_t launch_write(void* address, cudaStream_t stream);

/// Counts each of the elements up once, in a loop over the grid.
cudaError_t launch_count_up(int* values, int count, dim3 blocks, dim3 threads, cudaStream_t stream);

/// to[place of the thread in the grid] = that place, from the built-in variables in three dimensions.
cudaError_t launch_places(int* to, dim3 blocks, dim3 threads, cudaStream_t stream);

enum class Exchange { index, up, down, exclusive_or };

/// to[lane] = what a lane of a full warp gets if each gives 100 + lane.
cudaError_t launch_shuffle(int* to, Exchange exchange, int operand, int width, cudaStream_t stream);

/// to[lane] = the ballot of the lanes in the mask, where each odd lane votes yes; lanes outside the mask get 0.
cudaError_t launch_ballot(unsigned* to, unsigned mask, cudaStream_t stream);

/// to[lane] = 2 if any lane is number `any_of`, plus 1 if all are below `all_of`.
cudaError_t launch_votes(int* to, int any_of, int all_of, cudaStream_t stream);

/// Blocks of 128 threads reverse their part in shared memory.
cudaError_t launch_reverse(const int* from, int* to, int blocks, cudaStream_t stream);

/// The lanes of a warp hand a value around through shared memory, with barriers of the warp.
cudaError_t launch_hand_around(int* to, cudaStream_t stream);

/// Sums over a warp by shuffles: to[0] = the sum of the lanes' numbers.
cudaError_t launch_warp_sum(int* to, cudaStream_t stream);

/// Atomic functions on counters: adds 1, takes the most and the least of the threads' places, and counts up by
/// compare-and-swap.
cudaError_t launch_atomics(int* counters, int blocks, int threads, cudaStream_t stream);

// --- Arithmetic, one thread for each element ---

cudaError_t launch_multiply_add(const float* a, const float* b, const float* c, float* to, int count,
                                cudaStream_t stream);
cudaError_t launch_multiply_add(const double* a, const double* b, const double* c, double* to, int count,
                                cudaStream_t stream);
cudaError_t launch_divide(const float* a, const float* b, float* to, int count, cudaStream_t stream);
cudaError_t launch_divide(const double* a, const double* b, double* to, int count, cudaStream_t stream);

enum class Function { square_root, exponential, logarithm, hyperbolic_tangent, larger_than_one, smaller_than_one };
cudaError_t launch_function(Function function, const float* from, float* to, int count, cudaStream_t stream);
cudaError_t launch_function(Function function, const double* from, double* to, int count, cudaStream_t stream);

cudaError_t launch_to_bf16(const float* from, std::uint16_t* to, int count, cudaStream_t stream);
cudaError_t launch_from_bf16(const std::uint16_t* from, float* to, int count, cudaStream_t stream);
cudaError_t launch_to_int(const float* from, int* to, int count, cudaStream_t stream);
cudaError_t launch_from_int(const int* from, float* to, int count, cudaStream_t stream);
cudaError_t launch_narrow(const double* from, float* to, int count, cudaStream_t stream);

/// Quotient, remainder, shift to the right, and the unsigned sum's wrap-around.
cudaError_t launch_integers(const int* a, const int* b, int* to, int count, cudaStream_t stream);

}  // namespace lockstep::probes
