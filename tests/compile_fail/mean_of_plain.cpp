// The mean of a plain value is that value, of which still nothing proves that the others have the same.
// expect: Mirrored<double>'
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

Mirrored<double> program(StrategyExtended& extended, double rate) {
#ifdef REFUSED
  return extended.reduce_to(ReduceOp::mean, rate);
#else
  return extended.reduce_to(ReduceOp::mean, PerReplica<double>{rate});
#endif
}
