// The oneDNN kernels of a build without oneDNN.
#include <lockstep/core/base/error.hpp>

#include "models/ops/backends.hpp"

namespace lockstep::ops {

bool onednn_is_built_in() {
  return false;
}

std::unique_ptr<Kernels> make_onednn_kernels(Kernels::Threads) {
  throw ConfigError{"this build has no oneDNN kernels: expected auto or reference"};
}

void end_kernel_threads() {}

}  // namespace lockstep::ops
