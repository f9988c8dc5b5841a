// The check of what is created under colocate_vars_with.
#pragma once

namespace lockstep {

class Strategy;

namespace detail {

/// ContextError where a variable of `strategy` may not be created: under a guard of colocate_vars_with it must be the
/// current strategy, and that of the guard's variable.
void require_colocated(const Strategy& strategy);

}  // namespace detail
}  // namespace lockstep
