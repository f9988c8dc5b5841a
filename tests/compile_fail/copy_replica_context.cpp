// A replica context that replica code copies, to have it when its run is over.
// expect: it belongs to one run and ends with it
#include <lockstep/training.hpp>

using namespace lockstep;

void program(Strategy& strategy) {
  strategy.run([](ReplicaContext& context) {
#ifdef REFUSED
    ReplicaContext mine = context;
#else
    ReplicaContext& mine = context;
#endif
    (void)mine.all_reduce(ReduceOp::sum, 1);
  });
}
