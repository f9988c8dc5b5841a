// What MPI's own collectives are taken for on a simulated network: algorithms that MPIs use for short messages.
#pragma once

#include <cstdint>

#include "job/sim/plane.hpp"

namespace lockstep::sim {

// Each is the part of the rank at `place`, among n ranks; the depth of the algorithm is ceil(log2(n)). Without a
// network, it is an empty route.

/// A binomial tree: the root sends as many messages as it is deep.
Route broadcast_route(const Plane& plane, int place, int root, std::int64_t bytes);

/// A binomial tree: each rank but the root sends one message.
Route reduce_route(const Plane& plane, int place, int root, std::int64_t bytes);

/// Recursive doubling: as many messages as it is deep, each of all bytes.
Route all_reduce_route(const Plane& plane, std::int64_t bytes);

/// Bruck's: as many messages as it is deep, which bring what is not the rank's own once.
Route all_gather_route(const Plane& plane, std::int64_t bytes, std::int64_t own_bytes);

/// Linear: each rank but the root sends it one message.
Route gather_route(const Plane& plane, int place, int root, std::int64_t bytes);

/// Counts what `rank` sends while MPI makes a communicator of the plane's members: an all-reduce of 8 bytes.
void count_split(const Plane& plane, int rank);

}  // namespace lockstep::sim
