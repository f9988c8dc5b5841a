// Leads from ranks that can talk over MPI to an NCCL communicator among them, or to one error on all of them.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "core/comm/communicator.hpp"
#include "core/comm/nccl/nccl_handle.hpp"
#include "core/device/device.hpp"

namespace lockstep {

/// A communicator that has carried its first collective, and the stream that it used.
struct StartedNccl {
  std::shared_ptr<Stream> stream;
  std::unique_ptr<NcclHandle> handle;  ///< destroyed first: its collectives are on the stream
};

/// COLL over `host`, which carries all agreements. Blocks no longer than `timeout`, plus the time that the limits of
/// `tools` grant an abort. Rank 0 makes the unique id and all get it. No rank enters NCCL before all are ready to. Each
/// stage of the start ends when all ranks are through. NcclStartError on every rank if one failed, with the words of
/// the lowest that did; a rank that only waited in vain is blamed only if no rank failed otherwise
/// and some rank did not wait in vain.
/// `on_stuck`, if there is one, is called with a StallError on another thread if a stage does not end because a call
/// does not return: after `timeout`, or a second later where the stage waits for others itself. If it returns itself,
/// the start continues, and a later stage may call it again. `stream` is NcclOptions::stream.
StartedNccl start_nccl(Communicator& host, Device& device, const NcclTools& tools, Seconds timeout,
                       const std::function<void(std::exception_ptr)>& on_stuck = nullptr,
                       std::shared_ptr<std::unique_ptr<Stream>> stream = nullptr);

}  // namespace lockstep
