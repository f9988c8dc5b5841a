// A reduction of a truth value.
// expect: Reducible
// expect: float, double, int32_t, int64_t, uint8_t, Tensor; nests; structs with a Nest
#include <lockstep/training.hpp>

using namespace lockstep;

void program(ReplicaContext& context, bool all_well) {
#ifdef REFUSED
  (void)context.all_reduce(ReduceOp::sum, all_well);
#else
  (void)context.all_reduce(ReduceOp::sum, all_well ? 1 : 0);
#endif
}
