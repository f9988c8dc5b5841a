// A reduction that nothing can wait for.
// expect: keep what all_reduce_async returns
#include <lockstep/training.hpp>

using namespace lockstep;

void program(ReplicaContext& context) {
#ifdef REFUSED
  context.all_reduce_async(ReduceOp::sum, 1.F);
#else
  (void)context.all_reduce_async(ReduceOp::sum, 1.F).wait();
#endif
}
