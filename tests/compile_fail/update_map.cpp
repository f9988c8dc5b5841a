// update() with a map, deep inside of which is a value that may differ by rank.
// expect: SameOnEveryReplica
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

#ifdef REFUSED
using Argument = std::map<std::string, std::optional<PerReplica<int>>>;
#else
using Argument = std::map<std::string, std::optional<Mirrored<int>>>;
#endif

void program(StrategyExtended& extended, const Variable& w, const Argument& argument) {
  extended.update(
      w, [](const Variable&, const std::map<std::string, std::optional<int>>&) {}, args(argument));
}
