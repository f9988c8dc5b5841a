// Why a process finds no GPU, as a function of what CUDA and the environment say.
#pragma once

#include <string>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// What was asked, and what came back.
struct GpuAnswer {
  int code = 0;                   ///< of cudaGetDeviceCount: a cudaError_t
  std::string text = {};          ///< of the code, as CUDA has it
  int driver_cuda = 0;            ///< the CUDA that the driver supports, 13000 for 13.0; 0 if there is no driver
  int build_cuda = 0;             ///< the CUDA of this build
  const char* visible = nullptr;  ///< CUDA_VISIBLE_DEVICES; null if it is not set
};

/// The reason in a few words: "libcuda.so.1, the NVIDIA driver, was not found".
LOCKSTEP_PARTS_API std::string why_no_gpu(const GpuAnswer& answer);

}  // namespace lockstep::detail
