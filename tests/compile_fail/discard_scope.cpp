// A scope without a name, which is over before the next line.
// expect: the scope ends when this value goes: give it a name
#include <lockstep/training.hpp>

using namespace lockstep;

MirroredVariable program(Strategy& strategy) {
#ifdef REFUSED
  strategy.scope();
#else
  const Scope scope = strategy.scope();
#endif
  return Strategy::current().create_variable({.name = "w"}, [] { return Tensor::scalar(1.f); });
}
