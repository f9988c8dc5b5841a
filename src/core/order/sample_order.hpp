// The order in which an epoch visits the samples.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/parts.hpp"

namespace lockstep {

/// A uniform permutation of 0, 1, … count - 1: element p is the sample at position p of the epoch. A pure function of
/// the three arguments: every rank computes the same order, none is sent, and a resumed run need not remember any
/// state. InvalidArgument if `count` is negative or `epoch` is outside [0, 2^56).
LOCKSTEP_PARTS_API std::vector<std::int64_t> sample_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

}  // namespace lockstep
