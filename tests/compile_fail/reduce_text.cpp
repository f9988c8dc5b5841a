// A reduction of text.
// expect: Reducible
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

void program(StrategyExtended& extended, const PerReplica<std::string>& name) {
#ifdef REFUSED
  (void)extended.reduce_to(ReduceOp::sum, name);
#else
  (void)extended.reduce_to(ReduceOp::sum, PerReplica<int>{name.local().empty() ? 0 : 1});
#endif
}
