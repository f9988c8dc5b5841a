// A scope that outlives the block it was opened in.
// expect: it ends where it stands: contexts nest like blocks
#include <lockstep/lockstep.hpp>

using namespace lockstep;

void program(Strategy& strategy) {
  const Scope scope = strategy.scope();
#ifdef REFUSED
  const Scope again = scope;
#else
  const Scope again = strategy.scope();
#endif
}
