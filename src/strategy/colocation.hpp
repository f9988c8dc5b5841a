// Checks what is created under colocate_vars_with.
#pragma once

namespace lockstep {

class Strategy;

namespace detail {

/// ContextError if `strategy` may not create a variable here. Under a guard of colocate_vars_with, it must be the
/// current strategy and that of the guard's variable.
void require_colocated(const Strategy& strategy);

}  // namespace detail
}  // namespace lockstep
