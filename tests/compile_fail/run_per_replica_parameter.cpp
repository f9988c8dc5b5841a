// Replica code that takes a PerReplica: it gets its own component.
// expect: ReplicaFunctionFor
#include <lockstep/training.hpp>

using namespace lockstep;

void program(Strategy& strategy, const PerReplica<Tensor>& batch) {
#ifdef REFUSED
  const auto step = [](ReplicaContext&, const PerReplica<Tensor>&) {};
#else
  const auto step = [](ReplicaContext&, const Tensor&) {};
#endif
  strategy.run(step, args(batch));
}
