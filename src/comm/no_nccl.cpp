// Stands in for the NCCL backend in a build without one.
#include <lockstep/base/error.hpp>

#include "comm/backends.hpp"
#include "comm/communicator.hpp"
#include "device/device.hpp"

namespace lockstep {

std::unique_ptr<Communicator> make_nccl_communicator(Communicator&, Device&, Stream&, NcclOptions) {
  throw DeviceError{"this build has no GPU backend"};
}

void allow_shared_gpu() {}

}  // namespace lockstep
