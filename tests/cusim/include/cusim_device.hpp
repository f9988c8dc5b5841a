// What cuda_runtime.h needs of libcudart.so.13 beyond the host's API: the launch of a kernel, and what a thread of a
// kernel may ask for. Kernels do not include it themselves.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#define CUSIM_EXPORT [[gnu::visibility("default")]]

namespace cusim::device {

/// Where a kernel calls a function that its threads must reach together.
struct Place {
  const char* file;
  unsigned line;
};

/// Calls `kernel` with the parameters at `parameters`.
using Call = void (*)(const void* kernel, const void* parameters);

/// Enqueues a launch. Copies the parameters, which must be trivially copyable.
CUSIM_EXPORT cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, Call call, const void* parameters,
                                std::size_t bytes);

/// The calling block's object for a `__shared__` declaration, of which `declaration` is the identity.
CUSIM_EXPORT void* shared_of_block(const void* declaration, std::size_t bytes);

CUSIM_EXPORT void barrier(Place place);
CUSIM_EXPORT void warp_barrier(unsigned mask, Place place);

enum class Shuffle { index, up, down, exclusive_or };

/// The bits of the lane from which the calling one reads.
CUSIM_EXPORT std::uint64_t shuffle(unsigned mask, std::uint64_t value, Shuffle kind, unsigned operand, int width,
                                   Place place);

/// The lanes of the mask whose `predicate` holds.
CUSIM_EXPORT unsigned ballot(unsigned mask, bool predicate, Place place);

CUSIM_EXPORT unsigned active_mask();

/// Checks an atomic operation on an integer, which the caller then does.
CUSIM_EXPORT void atomic(const void* address, std::size_t bytes);

/// Ends the process: atomic additions of floats come in any order, so the sum has no fixed bits.
[[noreturn]] CUSIM_EXPORT void refuse_float_atomic();

}  // namespace cusim::device

namespace cusim {

/// What nvcc makes of `__shared__ Element name[count]`.
template <class Element, std::size_t count>
class Shared {
 public:
  using Array = Element[count];
  Array& of_block() const { return *static_cast<Array*>(device::shared_of_block(this, sizeof(Array))); }

 private:
  char identity_ = 0;
};

}  // namespace cusim
