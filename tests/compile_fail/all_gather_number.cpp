// A gather of a number, which has no rows.
// expect: Gatherable
// expect: Tensor (for a number, one of shape [1]); nests; structs with a Nest
#include <lockstep/training.hpp>

using namespace lockstep;

void program(ReplicaContext& context) {
#ifdef REFUSED
  (void)context.all_gather(1.F);
#else
  (void)context.all_gather(Tensor::from({1.F}, {1}));
#endif
}
