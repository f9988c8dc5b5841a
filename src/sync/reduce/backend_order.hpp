// Path::backend_order: the sum that the communicator's backend makes, as fast as it can.
//
//   1. The backend sums over the ranks, in an order of its own: MPI_Allreduce, ncclAllReduce, or the like to a root.
//   2. For a mean, each rank that has the sum divides it.
//
// A ring of n ranks takes 2 (n - 1) messages of each rank, and 2 S (n - 1) / n bytes for S bytes. Backends have other
// ways for short messages, and choose by size and number of ranks, so the bits may depend on how many ranks there are.
// On GPUs, which work by themselves, a sum that was started goes on while the host does. One in slices is made whole.
#pragma once

#include <vector>

#include "core/comm/communicator.hpp"
#include "sync/reduce/request.hpp"

namespace lockstep::detail {

/// COLL. A sum of one flat tensor.
void sum_in_backend_order(Communicator& communicator, const Request& request);

/// COLL. The same for the parts of a message, for all ranks. What is not adjacent is copied to memory of its own: the
/// next message may start before this one has ended. `communicator` must outlive the Work.
Work start_in_backend_order(Communicator& communicator, ReduceOp op, std::vector<TensorView> parts);

}  // namespace lockstep::detail
