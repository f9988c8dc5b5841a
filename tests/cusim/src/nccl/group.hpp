// Groups of calls, one for each thread.
#pragma once

#include <memory>

#include <nccl.h>

#include "communicator.hpp"

namespace cusim {

bool in_group();

/// Enqueues the call, or keeps it for the end of the thread's group.
ncclResult_t add(const std::shared_ptr<Comm>& comm, const Call& call);

/// A call that failed fails the group that it is in.
ncclResult_t failed_in_group(ncclResult_t result);

ncclResult_t start_group();
ncclResult_t end_group();

}  // namespace cusim
