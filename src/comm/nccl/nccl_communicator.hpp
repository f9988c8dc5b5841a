// make_nccl_communicator with its surroundings as an argument.
#pragma once

#include "comm/backends.hpp"
#include "comm/communicator.hpp"
#include "comm/nccl/nccl_handle.hpp"
#include "device/device.hpp"

namespace lockstep {

/// As the public function, with `tools` in place of the linked library and the machine's time.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device, Stream& compute,
                                                     NcclOptions options, const NcclTools& tools);

}  // namespace lockstep
