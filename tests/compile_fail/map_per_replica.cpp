// map() with a value that each replica has its own of.
// expect: SameOnEveryReplica
#include <vector>

#include <lockstep/lockstep.hpp>

using namespace lockstep;

int program(Strategy& strategy, const std::vector<int>& items, const PerReplica<int>& offset) {
  const Mirrored<int> sum = strategy.extended().reduce_to(ReduceOp::sum, offset);
#ifdef REFUSED
  const auto& argument = offset;
#else
  const auto& argument = sum;
#endif
  return strategy.reduce(ReduceOp::sum, strategy.extended().map(
                                            items, [](int item, int more) { return item + more; }, args(argument)));
}
