// Small kernels for the test of cusim's checks: wrong ones, and right ones that are nearly the same.
#pragma once

#include <span>

#include <cuda_runtime_api.h>

namespace cusim::test {

/// What a case may use. Arrays of 4096 ints.
struct CaseMemory {
  static constexpr int count = 4096;

  int* full;    ///< element i is i
  int* out;     ///< zeros
  int* empty;   ///< never written
  int* freed;   ///< freed before the launch
  int* pinned;  ///< the host's, page-locked; element i is i
  int* host;    ///< the host's
};

struct KernelCase {
  const char* name;
  cudaError_t (*launch)(const CaseMemory&);
  /// A part of the message for which the process ends; null where the kernel is right.
  const char* message;
};

std::span<const KernelCase> kernel_cases();

/// A kernel that does nothing.
cudaError_t launch_empty(dim3 grid, dim3 block);

/// Enqueues a kernel that copies CaseMemory::count ints.
cudaError_t launch_copy(const int* from, int* to, cudaStream_t stream);

}  // namespace cusim::test
