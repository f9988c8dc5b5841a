// The GPU kernels of a build without them.
#include <lockstep/base/error.hpp>

#include "ops/backends.hpp"

namespace lockstep::ops {

std::unique_ptr<Kernels> make_cuda_kernels(Stream&) {
  throw DeviceError{"this build has no GPU backend"};
}

}  // namespace lockstep::ops
