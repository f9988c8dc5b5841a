// An all_reduce of a PerReplica: replica code has its own component at hand.
// expect: Reducible
#include <lockstep/training.hpp>

using namespace lockstep;

void program(ReplicaContext& context, const PerReplica<double>& loss) {
#ifdef REFUSED
  (void)context.all_reduce(ReduceOp::sum, loss);
#else
  (void)context.all_reduce(ReduceOp::sum, loss.local());
#endif
}
