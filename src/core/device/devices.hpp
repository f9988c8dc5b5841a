// Devices of this process, and what is done with all of one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/core/base/device_kind.hpp>

#include "core/base/parts.hpp"
#include "core/device/device.hpp"
#include "core/device/device_marks.hpp"

namespace lockstep {

/// The CPU. Its work is done when the call returns.
std::unique_ptr<Device> make_host_device();

/// Zeroed host memory. DeviceError if there is not enough.
Buffer allocate_host(std::size_t bytes);

/// The number of GPUs that this process could bind. 0 if there is no GPU backend
/// (core/device/gpu_backend.hpp), or no driver.
int cuda_device_count();

/// The UUIDs of those GPUs as 32 hexadecimal digits, in the order of their indices. A launcher may show each process of
/// a node other GPUs, so GPU 0 of one process need not be GPU 0 of another. DeviceError if a GPU does not answer.
std::vector<std::string> cuda_device_uuids();

/// Binds GPU `index` of this node for the life of the process. Nothing in the process may touch a GPU before.
/// DeviceError if there is no GPU backend, or the GPU cannot be used.
std::unique_ptr<Device> make_cuda_device(int index);

/// Marks on the streams of this process's GPU, which must be bound; null if the backend has none. DeviceError if there
/// is no backend.
LOCKSTEP_PARTS_API std::unique_ptr<DeviceMarks> make_device_marks();

/// Blocks until all work of this process on its device of `kind` is done, on whichever stream and of whichever library.
void synchronize_device(DeviceKind kind);

namespace detail {

/// The index of the GPU that this process has bound. DeviceError if it has bound none.
LOCKSTEP_PARTS_API int cuda_device_index();

/// Why cuda_device_count() is 0, in a few words. Empty if it is not.
std::string why_no_cuda_device();

}  // namespace detail
}  // namespace lockstep
