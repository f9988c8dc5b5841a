// The seam between make_kernels and the backends of the CPU. Meson chooses which file implements oneDNN.
#pragma once

#include <memory>

#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops {

std::unique_ptr<Kernels> make_reference_kernels();

bool onednn_is_built_in();

/// ConfigError if it is not built in.
std::unique_ptr<Kernels> make_onednn_kernels(Kernels::Threads threads);

/// Ends the threads that kernels have started for the calling thread, which otherwise look for work for a while after
/// the last call, at the cost of whoever needs their cores. The next call starts them again.
void end_kernel_threads();

}  // namespace lockstep::ops
