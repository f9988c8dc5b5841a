// A value that may differ by rank where one is declared that is the same on all.
// expect: Mirrored(const PerReplica<U>&) = delete
// expect: may differ by rank: reduce it, or broadcast it
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

void set_rate(const Mirrored<double>& rate);

void program(Strategy& strategy, const PerReplica<double>& rate) {
#ifdef REFUSED
  set_rate(rate);
#else
  set_rate(StrategyExtended{strategy}.reduce_to(ReduceOp::mean, rate));
#endif
}
