// A guard of colocate_vars_with without a name, which is gone before the next line.
// expect: the guard ends when this value goes: give it a name
#include <lockstep/lockstep.hpp>

using namespace lockstep;

MirroredVariable program(Strategy& strategy, const Variable& w) {
  const Scope scope = strategy.scope();
#ifdef REFUSED
  strategy.extended().colocate_vars_with(w);
#else
  const StrategyExtended::Colocation beside = strategy.extended().colocate_vars_with(w);
#endif
  return strategy.create_variable({.name = "slot"}, [] { return Tensor::scalar(1.f); });
}
