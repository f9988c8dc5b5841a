// The seam between make_kernels and the backends. Which file answers for oneDNN is Meson's choice.
#pragma once

#include <memory>

#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

std::unique_ptr<Kernels> make_reference_kernels();

bool onednn_is_built_in();

/// ConfigError where it is not.
std::unique_ptr<Kernels> make_onednn_kernels(Threads threads);

}  // namespace lockstep::ops
