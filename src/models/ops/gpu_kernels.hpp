// What models ask a GPU backend for: the second table of liblockstep-cuda.so, to which that of
// core/device/gpu_backend.hpp leads. It has the same version.
#pragma once

#include <memory>

#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::detail {

struct GpuKernels {
  // models/ops/kernels.hpp, on a GPU's stream
  std::unique_ptr<ops::Kernels> (*make_kernels)(Stream& stream);
};

}  // namespace lockstep::detail
