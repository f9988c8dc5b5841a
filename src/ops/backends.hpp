// The seam between make_kernels and the backends. Meson chooses which files implement oneDNN and the GPU.
#pragma once

#include <memory>

#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

std::unique_ptr<Kernels> make_reference_kernels();

bool onednn_is_built_in();

/// ConfigError if it is not built in.
std::unique_ptr<Kernels> make_onednn_kernels(Kernels::Threads threads);

/// `stream` must be a GPU's. DeviceError if the build has no GPU backend.
std::unique_ptr<Kernels> make_cuda_kernels(Stream& stream);

}  // namespace lockstep::ops
