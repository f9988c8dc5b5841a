// map() with a value that each replica has its own of.
// expect: SameOnEveryReplica
#include <vector>

#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

int program(Strategy& strategy, const std::vector<int>& items, const PerReplica<int>& offset) {
  const Mirrored<int> sum = StrategyExtended{strategy}.reduce_to(ReduceOp::sum, offset);
#ifdef REFUSED
  const auto& argument = offset;
#else
  const auto& argument = sum;
#endif
  return strategy.reduce(ReduceOp::sum, StrategyExtended{strategy}.map(
                                            items, [](int item, int more) { return item + more; }, args(argument)));
}
