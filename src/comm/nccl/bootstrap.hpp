// From ranks that can talk over MPI to a communicator of NCCL's among them, or to one error on all of them.
#pragma once

#include <memory>

#include <lockstep/comm/communicator.hpp>

#include "comm/nccl/nccl_handle.hpp"

namespace lockstep {

/// A communicator that has carried its first collective, and the stream it did that on.
struct StartedNccl {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<NcclHandle> handle;  ///< goes first: its collectives are on the stream
};

/// COLL over `host`, which carries all that is agreed; blocks, for no longer than `timeout` and what the limits of
/// `tools` grant an abort. Rank 0 makes the unique id and all get it; no rank enters NCCL before all are ready to; each
/// stage of the start is over when all ranks are through. CommError on every rank if one failed, with the words of the
/// lowest that did; one that only waited in vain counts where none failed otherwise.
StartedNccl start_nccl(Communicator& host, Device& device, const NcclTools& tools, Seconds timeout);

}  // namespace lockstep
