// Whether all ranks compute with the same kernels.
#pragma once

#include <string>

#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep {

/// COLL, agreed. MismatchError, in the words of the fingerprints, if `fingerprint` is not the same on every rank: other
/// processors, or other versions of a library, may give other bits.
void require_same_kernels(Strategy& strategy, const std::string& fingerprint);

}  // namespace lockstep
