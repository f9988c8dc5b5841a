// Replica code with a parameter more than run() has arguments.
// expect: ReplicaFunctionFor
#include <lockstep/training.hpp>

using namespace lockstep;

void program(Strategy& strategy, const Mirrored<double>& rate) {
#ifdef REFUSED
  const auto step = [](ReplicaContext&, double, int) {};
#else
  const auto step = [](ReplicaContext&, double) {};
#endif
  strategy.run(step, args(rate));
}
