#include "core/device/gpu_absence.hpp"

#include <fmt/format.h>

#include "core/base/excerpt.hpp"

namespace lockstep::detail {
namespace {

/// Those of cudaError_t that say why there is no GPU. A build without CUDA has the names of none.
enum Code {
  stub_library = 34,
  insufficient_driver = 35,
  devices_unavailable = 46,
  no_device = 100,
  not_permitted = 800,
  system_not_ready = 802,
  system_driver_mismatch = 803,
  compat_not_supported = 804
};

std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace

std::string why_no_gpu(const GpuAnswer& answer) {
  switch (answer.code) {
    case stub_library: return "libcuda.so.1 is the stub of a CUDA toolkit, not that of an NVIDIA driver";
    case insufficient_driver:
      // CUDA says the same of a driver that is too old and of one that is not there.
      if (answer.driver_cuda == 0) return "libcuda.so.1, the NVIDIA driver, was not found";
      return fmt::format("the NVIDIA driver is too old: it supports CUDA {}, and this build needs {}",
                         cuda_version(answer.driver_cuda), cuda_version(answer.build_cuda));
    case devices_unavailable: return "other processes have all GPUs for themselves";
    case no_device:
      if (answer.visible) return fmt::format("CUDA_VISIBLE_DEVICES is '{}', which shows none", excerpt(answer.visible));
      return "the NVIDIA driver finds none";
    case not_permitted: return "this process may not use any";
    case system_not_ready: return "the system is not ready, because a service such as NVIDIA's fabric manager is not";
    case system_driver_mismatch: return "the NVIDIA driver in the kernel and libcuda.so.1 are of different versions";
    case compat_not_supported: return "CUDA's compatibility libraries, which are in use, do not support this GPU";
    default: return fmt::format("cudaGetDeviceCount says {} ({})", answer.text, answer.code);
  }
}

}  // namespace lockstep::detail
