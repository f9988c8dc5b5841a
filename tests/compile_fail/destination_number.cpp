// A bare number for a destination.
// expect: OneReplica'
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

void program(StrategyExtended& extended, const PerReplica<Tensor>& value) {
#ifdef REFUSED
  (void)extended.reduce_to(ReduceOp::sum, value, 0);
#else
  (void)extended.reduce_to(ReduceOp::sum, value, StrategyExtended::OneReplica{0});
#endif
}
