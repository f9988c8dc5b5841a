// A broadcast of a plain number, which could be meant as replica 0's or as the same everywhere.
// expect: broadcast_object sends replica 0's value, same_on_all compares
#include <lockstep/lockstep.hpp>

using namespace lockstep;

void program(StrategyExtended& extended, int rank) {
#ifdef REFUSED
  (void)extended.broadcast_to(rank);
#else
  (void)extended.broadcast_to(PerReplica{rank});
#endif
}
