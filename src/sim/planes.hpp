// The two planes of a simulated rank.
#pragma once

#include <memory>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/control/channel.hpp>

#include "sim/plane.hpp"

namespace lockstep::sim {

/// `plane` must outlive the result.
std::unique_ptr<ControlChannel> make_channel(Plane& plane, int rank, int size);

/// On host memory. Besides what every communicator does it looks for mistakes that a real one would forgive: a tensor
/// that is written to before `wait` (CommError), the use of memory nobody wrote (it holds NaNs), and of what `reduce`
/// leaves where it is of no use. `rank` is the job's.
std::unique_ptr<Communicator> make_communicator(Plane& plane, int rank);

}  // namespace lockstep::sim
