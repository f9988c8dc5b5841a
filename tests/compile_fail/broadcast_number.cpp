// A broadcast of a plain number, which could be meant as replica 0's or as the same everywhere.
// expect: broadcast_object sends replica 0's, same_on_all compares
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

void program(StrategyExtended& extended, int rank) {
#ifdef REFUSED
  (void)extended.broadcast_to(rank);
#else
  (void)extended.broadcast_to(PerReplica{rank});
#endif
}
