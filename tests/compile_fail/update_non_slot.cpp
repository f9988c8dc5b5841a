// update_non_slot() with a value that may differ by rank.
// expect: SameOnEveryReplica
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

void program(StrategyExtended& extended, const Variable& w, const PerReplica<double>& rate) {
#ifdef REFUSED
  const auto& argument = rate;
#else
  const auto argument = extended.reduce_to(ReduceOp::mean, rate);
#endif
  extended.update_non_slot(
      std::vector{w}, [](double) {}, args(argument));
}
