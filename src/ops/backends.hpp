// The seam between make_kernels and the backends of the CPU. Meson chooses which file implements oneDNN.
#pragma once

#include <memory>

#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

std::unique_ptr<Kernels> make_reference_kernels();

bool onednn_is_built_in();

/// ConfigError if it is not built in.
std::unique_ptr<Kernels> make_onednn_kernels(Kernels::Threads threads);

}  // namespace lockstep::ops
