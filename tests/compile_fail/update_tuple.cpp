// update() with a tuple of which one element may differ by rank.
// expect: SameOnEveryReplica
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

#ifdef REFUSED
using Argument = std::tuple<int, PerReplica<Tensor>>;
#else
using Argument = std::tuple<int, Mirrored<Tensor>>;
#endif

void program(StrategyExtended& extended, const Variable& w, const Argument& argument) {
  extended.update(
      w, [](const Variable&, const std::tuple<int, Tensor>&) {}, args(argument));
}
