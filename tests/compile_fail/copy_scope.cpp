// A scope that outlives the block it was opened in.
// expect: a scope ends with its block: contexts nest
#include <lockstep/training.hpp>

using namespace lockstep;

void program(Strategy& strategy) {
  const Scope scope = strategy.scope();
#ifdef REFUSED
  const Scope again = scope;
#else
  const Scope again = strategy.scope();
#endif
}
