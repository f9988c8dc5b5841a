// The seam between make_kernels and the backends. Which files answer for oneDNN and for GPUs is Meson's choice.
#pragma once

#include <memory>

#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

std::unique_ptr<Kernels> make_reference_kernels();

bool onednn_is_built_in();

/// ConfigError where it is not.
std::unique_ptr<Kernels> make_onednn_kernels(Threads threads);

/// `stream` is a GPU's. DeviceError where the build has no GPU backend.
std::unique_ptr<Kernels> make_cuda_kernels(Stream& stream);

}  // namespace lockstep::ops
