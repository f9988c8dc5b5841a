// make_nccl_communicator, and the same with its surroundings as an argument.
#pragma once

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/nccl/nccl_handle.hpp"
#include "core/device/device.hpp"

namespace lockstep {

/// make_nccl_communicator of core/comm/backends.hpp.
std::unique_ptr<Communicator> make_real_nccl_communicator(Communicator& host, Device& device, Stream& compute,
                                                          NcclOptions options);

/// The same, with `tools` in place of the linked library and the machine's time.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device, Stream& compute,
                                                     NcclOptions options, const NcclTools& tools);

}  // namespace lockstep
