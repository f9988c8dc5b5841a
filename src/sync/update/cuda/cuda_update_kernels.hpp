// The kernels of optimizers on a GPU. update_kernels.hpp has the contracts.
#pragma once

#include <memory>

#include <lockstep/core/device/stream.hpp>

#include "sync/update/update_kernels.hpp"

namespace lockstep::detail::cuda {

/// `stream` must outlive the result.
std::unique_ptr<UpdateKernels> make_update_kernels(Stream& stream);

}  // namespace lockstep::detail::cuda
