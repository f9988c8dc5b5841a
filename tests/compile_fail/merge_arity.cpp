// A merge function with a parameter more than merge_call has arguments.
// expect: MergeFunctionFor
#include <lockstep/training.hpp>

using namespace lockstep;

void program(ReplicaContext& context) {
#ifdef REFUSED
  const auto merge = [](Strategy&, const PerReplica<int>&, int) {};
#else
  const auto merge = [](Strategy&, const PerReplica<int>&) {};
#endif
  context.merge_call(merge, args(1));
}
