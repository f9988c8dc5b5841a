#include "strategy/shared_values.hpp"

#include <exception>

#include "control/meeting_point.hpp"
#include "group/replica_group.hpp"

namespace lockstep {

void detail::bring_home(Strategy& strategy, const Here& here) {
  try {
    strategy.store().bring_home();
  } catch (...) {
    strategy.group().meeting().fail(std::current_exception(), here);
  }
}

void detail::tell_written(Strategy& strategy, const Here& here) {
  try {
    strategy.store().written();
  } catch (...) {
    strategy.group().meeting().fail(std::current_exception(), here);
  }
}

}  // namespace lockstep
