// update() with a list of values that may differ by rank.
// expect: SameOnEveryReplica
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

#ifdef REFUSED
using Argument = std::vector<PerReplica<float>>;
#else
using Argument = std::vector<Mirrored<float>>;
#endif

void program(StrategyExtended& extended, const Variable& w, const Argument& argument) {
  extended.update(
      w, [](const Variable&, const std::vector<float>&) {}, args(argument));
}
