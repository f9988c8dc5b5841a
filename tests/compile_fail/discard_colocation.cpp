// A guard of colocate_vars_with without a name, which is gone before the next line.
// expect: the guard ends when this value goes: give it a name
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

MirroredVariable program(Strategy& strategy, const Variable& w) {
  const Scope scope = strategy.scope();
#ifdef REFUSED
  StrategyExtended{strategy}.colocate_vars_with(w);
#else
  const auto beside = StrategyExtended{strategy}.colocate_vars_with(w);
#endif
  return strategy.create_variable({.name = "slot"}, [] { return Tensor::scalar(1.f); });
}
