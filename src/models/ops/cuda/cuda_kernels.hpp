// The kernels on GPU memory.
#pragma once

#include <memory>

#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops::cuda {

/// `stream` must be a GPU's, and outlive the kernels.
std::unique_ptr<Kernels> make_kernels(Stream& stream);

}  // namespace lockstep::ops::cuda
