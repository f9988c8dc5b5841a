// The kernels of the simulated GPU: those of the host, on its memory, when its stream gets there.
#pragma once

#include <functional>
#include <memory>

#include <lockstep/models/ops/kernels.hpp>

#include "sync/update/update_kernels.hpp"

namespace lockstep::test {

/// Puts work at the end of a stream.
using Enqueue = std::function<void(std::function<void()>)>;

/// `stream` is the one that `enqueue` serves, and must outlive the kernels.
std::unique_ptr<ops::Kernels> make_simulated_kernels(Stream& stream, Enqueue enqueue);
std::unique_ptr<detail::UpdateKernels> make_simulated_update_kernels(Stream& stream, Enqueue enqueue);

}  // namespace lockstep::test
