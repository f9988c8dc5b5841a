// What other layers ask about GPUs, besides what devices.hpp has.
#pragma once

#include <string>

#include "base/parts.hpp"

namespace lockstep::detail {

/// The index of the GPU that this process has bound. DeviceError if it has bound none.
LOCKSTEP_PARTS_API int cuda_device_index();

/// Why cuda_device_count() is 0, in a few words. Empty if it is not.
std::string why_no_cuda_device();

}  // namespace lockstep::detail
