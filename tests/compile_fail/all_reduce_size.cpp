// A reduction of an unsigned number that no tensor holds.
// expect: Reducible
// expect: float, double, int32_t, int64_t, uint8_t, Tensor; nests; structs with a Nest
#include <lockstep/training.hpp>

using namespace lockstep;

void program(ReplicaContext& context) {
#ifdef REFUSED
  (void)context.all_reduce(ReduceOp::sum, std::size_t{1});
#else
  (void)context.all_reduce(ReduceOp::sum, std::int64_t{1});
#endif
}
