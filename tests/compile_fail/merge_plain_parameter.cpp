// A merge function that takes the caller's own type: what the replicas bring may differ.
// expect: MergeFunctionFor
#include <lockstep/training.hpp>

using namespace lockstep;

void program(ReplicaContext& context, const Tensor& loss) {
#ifdef REFUSED
  const auto merge = [](Strategy&, Tensor&) {};
#else
  const auto merge = [](Strategy&, const PerReplica<Tensor>&) {};
#endif
  context.merge_call(merge, args(loss));
}
