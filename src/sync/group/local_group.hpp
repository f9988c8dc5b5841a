// A group without a job.
#pragma once

#include <memory>

#include "sync/group/replica_group.hpp"

namespace lockstep {

/// A group of one rank: what a program has before, or without, a Runtime.
std::unique_ptr<ReplicaGroup> make_local_group();

}  // namespace lockstep
