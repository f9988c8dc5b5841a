// update() with a struct of the user's, of which one member may differ by rank.
// expect: SameOnEveryReplica
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

struct Step {
  int number;
#ifdef REFUSED
  PerReplica<double> rate;
#else
  Mirrored<double> rate;
#endif
};

template <>
struct lockstep::Nest<Step> {
  static constexpr auto members = std::tuple{&Step::number, &Step::rate};
};

void program(StrategyExtended& extended, const Variable& w, const Step& step) {
  extended.update(
      w, [](const Variable&, const Step&) {}, args(step));
}
