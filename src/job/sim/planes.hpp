// The planes of a simulated rank.
#pragma once

#include <memory>

#include "core/comm/communicator.hpp"
#include "core/comm/messenger.hpp"
#include "core/control/channel.hpp"
#include "job/sim/plane.hpp"

namespace lockstep::sim {

/// `plane` must outlive the result. `rank` is the job's number, here and below.
std::unique_ptr<ControlChannel> make_channel(Plane& plane, int rank);

/// A communicator on host memory. It also detects mistakes that a real backend would forgive: writing to a tensor
/// before `wait` (CommError), and using memory that nobody wrote (it holds NaNs), including what `reduce` leaves on
/// ranks other than the root.
std::unique_ptr<Communicator> make_communicator(Plane& plane, int rank);

/// Messages among the members of `plane`, which travel while they compute. Parcels leave at the call, and are written
/// to their places in the wait: the earliest and the latest moment that a backend may choose. Each `advance` is a
/// scheduling point.
std::unique_ptr<Messenger> make_messenger(Plane& plane, int rank);

}  // namespace lockstep::sim
