// The seam between the device layer and its GPU backend. Meson chooses which file implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::detail {

/// read_device, synchronize_device and memory_bytes for a GPU. DeviceError if the build has no GPU backend.
void read_cuda_device(void* to, const void* from, std::size_t bytes);
void synchronize_cuda_device();
std::uint64_t cuda_memory_bytes();

/// The index of the GPU that this process has bound. DeviceError if it has bound none.
int cuda_device_index();

/// Why cuda_device_count() is 0, in a few words. Empty if it is not.
std::string why_no_cuda_device();

}  // namespace lockstep::detail
