// A reduction of a map whose keys the ranks cannot compare.
// expect: Reducible
#include <lockstep/training.hpp>

using namespace lockstep;

void program(Strategy& strategy) {
#ifdef REFUSED
  using Key = const char*;
#else
  using Key = std::string;
#endif
  (void)strategy.reduce(ReduceOp::sum, PerReplica<std::map<Key, float>>{{{"loss", 0.5f}}});
}
