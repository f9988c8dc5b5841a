// The values of a store before and after something that the ranks do together.
#pragma once

#include <lockstep/strategy/strategy.hpp>

namespace lockstep::detail {

/// LOCAL, before the agreement on it, in the program's call at `here`. As VariableStore::bring_home. If that fails, the
/// exception is rethrown on this rank, and the others throw PeerError.
void bring_home(Strategy& strategy, const Here& here);

/// LOCAL, after it. As VariableStore::written, with the same errors.
void tell_written(Strategy& strategy, const Here& here);

}  // namespace lockstep::detail
